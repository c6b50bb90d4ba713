#include "papers/redox/redox_order.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "papers/redox/redox_bounds.h"
#include "papers/redox/redox_dump.h"
#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_node_stream.h"
#include "papers/redox/redox_protocol.h"
#include "papers/redox/redox_requests.h"

namespace headrace {
namespace {

// Requests that are looked up together, outside of steps.
constexpr std::uint64_t kRunTogether = std::uint64_t{1} << 20;
// Prefetches what a request needs this many requests ahead, and what leads there twice as many.
constexpr std::uint64_t kAhead = 8;
constexpr std::uint32_t kRequestsMax = 0xffff'ffff;  // of an epoch: reads are numbered by them

// The job as its epochs are cut into steps: by requests.
OrderOptions Requests(const RedoxOrderOptions& options) {
  OrderOptions job = options.job;
  if (options.trace != nullptr) job.sample_count = options.trace->size();
  return job;
}

// Of a job whose nodes exchange samples.
Status CheckExchange(const RedoxOrderOptions& options) {
  const OrderOptions& job = options.job;
  if (!job.exchange) return Status();
  if (options.trace != nullptr) {
    return InvalidArgument(
        "order redox: got a sampler, but nodes that read their own disks only and send each other "
        "samples plan the epoch's own permutation; leave the sampler out, or use shared storage");
  }
  if (job.ranks == 0 || job.world_size % job.ranks != 0 || job.rank % job.ranks != 0) {
    return InvalidArgument(
        "order redox: a stream has ranks [{}, {}) of {}, but nodes that send each other samples "
        "must have equally many",
        job.rank, job.rank + job.ranks, job.world_size);
  }
  if (options.nodes != job.nodes()) {
    return InvalidArgument(
        "nodes of order redox: got {}, but the job has {}, each with the disks of one home; give "
        "this number, or none",
        options.nodes, Counted(job.nodes(), "node"));
  }
  return Status();
}

Result<std::shared_ptr<const RedoxLayout>> CheckedLayout(const RedoxOrderOptions& options) {
  if (options.nodes == 0 || options.chunks_per_virtual == 0) {
    return InvalidArgument(
        "order redox: got nodes {} and chunks_per_virtual {}, both must be at least 1",
        options.nodes, options.chunks_per_virtual);
  }
  HEADRACE_RETURN_IF_ERROR(CheckExchange(options));
  HEADRACE_RETURN_IF_ERROR(StepsPerEpoch(Requests(options)).status());
  HEADRACE_ASSIGN_OR_RETURN(auto layout, RedoxLayout::Make(options));
  if (options.memory_units != 0 && options.memory_units < layout->largest_sample()) {
    const std::uint64_t unit = options.blocks->unit_bytes();
    return InvalidArgument(
        "memory_bytes of order redox: got {}, must be 0 (no limit) or hold the largest sample, {} "
        "bytes in memory",
        options.memory_units * unit, layout->largest_sample() * unit);
  }
  return layout;
}

class RedoxOrder final : public Order {
 public:
  RedoxOrder(const RedoxOrderOptions& options, std::shared_ptr<const RedoxLayout> layout,
             const std::vector<bool>& members, std::vector<bool> repeats, Position start)
      : options_(options),
        members_(members),
        repeats_(std::move(repeats)),
        layout_(std::move(layout)),
        requests_(Requests(options_)),
        steps_per_epoch_(StepsPerEpoch(requests_).value()),
        batch_(requests_.batch_size * requests_.world_size),
        asked_(requests_.drop_last ? steps_per_epoch_ * batch_ : requests_.sample_count),
        next_(start) {
    asks_.emplace(options_, layout_, repeats_);
    protocol_.emplace(options_, layout_, members_, RedoxProtocol::Counts{});
    if (options_.job.exchange) node_stream_.emplace(options_, layout_);
  }

  std::optional<Step> Next() override {
    if (next_.epoch >= options_.job.epochs) return std::nullopt;
    Step step;
    EnterEpoch(step);
    step.epoch = next_.epoch;
    step.step = next_.step;
    step.ends_epoch = next_.step + 1 == steps_per_epoch_;
    const std::uint64_t rows = RowsOfStep(requests_, next_.step);
    step.deliveries.resize(rows * requests_.ranks);
    const std::uint64_t begin = next_.step * batch_;
    const std::uint64_t end = begin + rows * requests_.world_size;
    served_.assign(std::min(end, asked_) - begin, SampleId{});
    slots_ = asks_->Slots(begin, std::min(end, asked_));
    std::span<const std::uint32_t> arrivals;
    if (options_.arrival) arrivals = asks_->Arrivals(next_.step, begin, served_.size());
    for (std::uint64_t i = 0; i < end - begin; ++i) {
      const std::uint64_t g = begin + (i < arrivals.size() ? arrivals[i] : i);
      if (node_stream_.has_value()) {
        Exchange(g, begin, rows, step);
      } else {
        Deliver(g, begin, rows, step);
      }
    }
    AddReads(step);
    if (step.ends_epoch) EndEpoch(step);
    std::ranges::sort(step.parcels, {},
                      [](const Parcel& each) { return std::pair(each.node, each.number); });
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    const RedoxProtocol::Counts& counts = protocol_->counts();
    const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
    const auto ratio = [&](std::uint64_t part, double whole) {
      return whole == 0 ? 0 : number(part) / whole;
    };
    const double unit = number(options_.blocks->unit_bytes());
    const bool whole = options_.read == RedoxOrderOptions::Reading::kChunk;
    const std::uint64_t read_units = whole ? counts.read_units : counts.kept_units;
    const double epochs = ratio(counts.requests + direct_reads_, number(asked_));
    std::map<std::string, double> counters = {
        {"requests", number(counts.requests + direct_reads_)},
        {"misses", number(counts.misses)},
        {"loads_per_chunk", ratio(counts.misses, number(layout_->chunk_count()) * epochs)},
        {"fill_rate", ratio(counts.filled, number(counts.read_samples))},
        {"kept_bytes", number(counts.kept_units) * unit},
        {"read_bytes", number(read_units) * unit},
        {"amplification", ratio(counts.read_units, number(counts.kept_units))},
        {"remote_reads", number(counts.remote_reads)},
        {"remote_requests", number(counts.remote_requests)},
        {"prefetched", number(counts.prefetched)},
        {"remote_bytes", number(counts.remote_units) * unit},
        {"peak_remote_bytes", number(counts.peak_remote_units) * unit},
        {"peak_resident_bytes", number(counts.peak_units) * unit},
        {"direct_reads", number(direct_reads_)},
        {"padded", number(padded_)},
        {"read_again", number(node_stream_.has_value() ? node_stream_->read_again() : read_again_)},
    };
    if (node_stream_.has_value()) node_stream_->AddCounters(unit, counters);
    return counters;
  }

  [[nodiscard]] std::string Dump() const override {
    if (!epoch_.has_value()) return {};
    std::vector<std::uint64_t> asks(layout_->sample_count(), RedoxDump::kNotAsked);
    const std::vector<std::uint32_t> samples = asks_->Samples(asked_);
    for (std::uint64_t g = 0; g < asked_; ++g) {
      if (!asks_->IsRepeat(g)) asks[samples[g]] = g;
    }
    return RedoxDump{
        .layout = *layout_, .protocol = *protocol_, .asks = asks, .nodes = options_.nodes}
        .Json();
  }

 private:
  void EnterEpoch(Step& step) {
    if (epoch_ == next_.epoch) return;
    epoch_ = next_.epoch;
    if (options_.remap) Remap();
    asks_->Begin(next_.epoch);
    protocol_->Begin(next_.epoch);
    if (protocol_->looks_ahead()) Announce();
    first_number_ = issued_;
    again_.clear();
    entered_at_ = 0;
    if (next_.step != 0) RunUpTo(next_.step * batch_, step);
  }

  // Deals the chunks to virtual chunks for this epoch.
  void Remap() {
    layout_ = RedoxLayout::Make(options_, next_.epoch).value();
    const RedoxProtocol::Counts counts = protocol_->counts();
    asks_.emplace(options_, layout_, repeats_);
    protocol_.emplace(options_, layout_, members_, counts);
    if (node_stream_.has_value()) node_stream_->SetLayout(layout_);
  }

  // Announces all requests of the epoch.
  void Announce() {
    for (std::uint64_t first = 0; first < asked_; first += kRunTogether) {
      const auto slots = asks_->Slots(first, std::min(asked_, first + kRunTogether));
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (i + kAhead < slots.size()) __builtin_prefetch(&layout_->slots()[slots[i + kAhead]]);
        if (!asks_->IsRepeat(first + i)) protocol_->Announce(asks_->NodeOf(first + i), slots[i]);
      }
    }
    protocol_->EndAnnouncements();
  }

  // Answers the request at position g of the step that begins at `begin`.
  RedoxAnswer Serve(std::uint64_t g, std::uint64_t begin) {
    const std::uint64_t i = g - begin;
    if (i + 2 * kAhead < slots_.size()) protocol_->ExpectSlot(slots_[i + 2 * kAhead]);
    if (i + kAhead < slots_.size())
      protocol_->Expect(asks_->NodeOf(g + kAhead), slots_[i + kAhead]);
    return protocol_->Serve(asks_->NodeOf(g), slots_[i]);
  }

  // Applies the steps before `begin` to memory, without their deliveries. Each read gets the number
  // of its request: later reads have higher numbers, in whatever order requests are served.
  void RunUpTo(std::uint64_t begin, Step& step) {
    RedoxRanges ranges(*layout_);
    std::vector<RedoxRequest> run;
    const std::uint64_t together = std::max<std::uint64_t>(1, kRunTogether / batch_) * batch_;
    for (std::uint64_t first = 0; first < begin; first += together) {
      const auto slots = asks_->Slots(first, std::min(begin, first + together));
      run.clear();
      std::span<const std::uint32_t> arrivals;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        std::size_t at = i;
        if (options_.arrival) {
          const std::size_t in_step = i % batch_;
          const std::uint64_t from = first + i - in_step;
          if (in_step == 0) arrivals = asks_->Arrivals(from / batch_, from, batch_);
          at = i - in_step + arrivals[in_step];
        }
        if (asks_->IsRepeat(first + at)) continue;
        run.push_back({.number = static_cast<std::uint32_t>(first + i),
                       .slot = slots[at],
                       .node = asks_->NodeOf(first + at)});
      }
      if (protocol_->virtual_chunks_are_independent()) ranges.Sort(run);
      for (std::size_t i = 0; i < run.size(); ++i) {
        if (i + 2 * kAhead < run.size()) {
          const RedoxRequest soon = run[i + kAhead];
          protocol_->ExpectSlot(run[i + 2 * kAhead].slot);
          protocol_->Expect(soon.node, soon.slot);
        }
        protocol_->NumberReadsFrom(run[i].number);
        static_cast<void>(protocol_->Serve(run[i].node, run[i].slot));
      }
      protocol_->ForgetReads();
    }
    ReadAgain(begin, step);
  }

  // Adds reads of the samples that are resident after the request before `begin`.
  void ReadAgain(std::uint64_t begin, Step& step) {
    protocol_->ResetCounts();
    protocol_->NumberReadsFrom(static_cast<std::uint32_t>(begin));
    entered_at_ = static_cast<std::uint32_t>(begin);
    if (node_stream_.has_value()) {
      node_stream_->Enter(protocol_->Residents(), step);
      return;
    }
    for (const RedoxHeld& resident : protocol_->Residents()) {
      if (again_.empty() || again_.back() != resident.read) {
        again_.push_back(resident.read);
        const std::uint64_t chunk = options_.blocks->Find(SampleId{resident.sample});
        BlockRead& read = step.reads.emplace_back(ReadOf(static_cast<std::uint32_t>(chunk)));
        read.number = issued_++;
        read.again = true;
      }
      BlockRead& read = step.reads.back();
      read.kept.push_back(resident.sample - static_cast<std::uint32_t>(Raw(read.first)));
    }
    for (BlockRead& read : step.reads) {
      if (read.kept.size() == read.count) read.kept.clear();
    }
    read_again_ += step.reads.size();
    first_number_ = issued_;
  }

  [[nodiscard]] BlockRead ReadOf(std::uint32_t chunk) const {
    const BlockMap::Block block = options_.blocks->block(chunk);
    BlockRead read;
    read.first = block.first;
    read.count = block.count;
    return read;
  }

  void AddReads(Step& step) {
    const RedoxProtocol::Reads& reads = protocol_->reads();
    HEADRACE_CHECK(!node_stream_.has_value() || reads.all.empty());
    std::size_t begin = 0;
    for (const RedoxProtocol::Read& each : reads.all) {
      BlockRead& read = step.reads.emplace_back(ReadOf(each.chunk));
      read.number = issued_++;
      read.whole = options_.read == RedoxOrderOptions::Reading::kChunk;
      const std::span kept = std::span(reads.kept).subspan(begin, each.kept_end - begin);
      begin = each.kept_end;
      if (kept.size() == read.count) continue;
      read.kept.assign(kept.begin(), kept.end());
      std::ranges::sort(read.kept);
    }
    protocol_->ForgetReads();
  }

  // The number in the stream of a read of this epoch.
  [[nodiscard]] std::uint64_t NumberOf(std::uint32_t read) const {
    if (read >= entered_at_) return first_number_ + (read - entered_at_);
    const auto found = std::ranges::lower_bound(again_, read);
    return first_number_ - again_.size() + static_cast<std::uint64_t>(found - again_.begin());
  }

  // The row of position g, in a step that begins at `begin`.
  [[nodiscard]] Delivery RowOf(std::uint64_t g, std::uint64_t begin) const {
    Delivery row;
    row.rank = static_cast<std::uint32_t>(g % requests_.world_size);
    if (node_stream_.has_value()) {
      // So that the ranks of a node share its requests, however many they are.
      row.rank = asks_->NodeOf(g) * requests_.ranks +
                 static_cast<std::uint32_t>(g / options_.nodes % requests_.ranks);
    }
    row.slot = static_cast<std::uint32_t>((g - begin) / requests_.world_size);
    return row;
  }

  [[nodiscard]] SampleId Padding(std::uint64_t g, std::uint64_t begin) {
    HEADRACE_CHECK(begin < asked_);  // Padding only fills up the last row, which has a request.
    ++padded_;
    return served_[(g - asked_) % (asked_ - begin)];
  }

  // Delivers the next sample in a job whose nodes exchange samples, as Deliver().
  void Exchange(std::uint64_t g, std::uint64_t begin, std::uint64_t rows, Step& step) {
    Delivery delivery = RowOf(g, begin);
    const std::uint32_t node = asks_->NodeOf(g);
    std::optional<std::uint64_t> read;
    if (g >= asked_) {
      delivery.sample = Padding(g, begin);
      read = node_stream_->TakeAnew(node, static_cast<std::uint32_t>(Raw(delivery.sample)), step);
    } else {
      const std::uint32_t home = layout_->slots()[slots_[g - begin]].home;
      const RedoxAnswer answer = Serve(g, begin);
      const std::uint32_t sample = answer.resident.sample;
      const RedoxProtocol::Reads& reads = protocol_->reads();
      for (const RedoxProtocol::Read& each : reads.all) {
        HEADRACE_CHECK(each.kept_end == reads.kept.size());  // A request takes one read at most.
        node_stream_->Read(home, each.chunk, reads.kept, step);
      }
      protocol_->ForgetReads();
      if (home != node && !answer.was_held) {
        node_stream_->Send(home, node, sample, answer.along, step);
      }
      read = node_stream_->Take(node, sample, answer.was_held);
      delivery.sample = SampleId{sample};
      served_[g - begin] = delivery.sample;
    }
    if (!read.has_value()) return;
    delivery.block_read = *read;
    step.deliveries[(delivery.rank - requests_.rank) * rows + delivery.slot] = delivery;
  }

  // Delivers the next sample, at position g of a step of `rows` rows a rank.
  void Deliver(std::uint64_t g, std::uint64_t begin, std::uint64_t rows, Step& step) {
    Delivery delivery = RowOf(g, begin);
    if (g >= asked_) {
      delivery.sample = Padding(g, begin);
    } else if (asks_->IsRepeat(g)) {
      delivery.sample = asks_->Repeated(g);
      ++direct_reads_;
    } else {
      const RedoxResident answer = Serve(g, begin).resident;
      delivery.sample = SampleId{answer.sample};
      delivery.block_read = NumberOf(answer.read);
    }
    if (g < asked_) served_[g - begin] = delivery.sample;
    const std::uint32_t lane = delivery.rank - requests_.rank;  // Wraps around for lower ranks.
    if (lane < requests_.ranks) {
      step.deliveries[lane * rows + delivery.slot] = delivery;
    } else if (delivery.block_read != kNoBlockRead) {
      step.releases.push_back({.block_read = delivery.block_read, .sample = delivery.sample});
    }
  }

  // Only with drop_last are there requests that are not made, and so samples left in memory.
  void EndEpoch(Step& step) {
    const std::vector<RedoxHeld> left = protocol_->Residents();
    HEADRACE_CHECK(left.empty() || asked_ < requests_.sample_count);
    for (const RedoxHeld& resident : left) {
      const std::optional<std::uint64_t> read =
          node_stream_.has_value()
              ? node_stream_->Take(resident.node, resident.sample, resident.node != resident.home)
              : NumberOf(resident.read);
      if (!read.has_value()) continue;
      step.releases.push_back({.block_read = *read, .sample = SampleId{resident.sample}});
    }
  }

  const RedoxOrderOptions options_;
  const std::vector<bool> members_;  // that a trace names; empty: all
  const std::vector<bool> repeats_;  // positions of a trace
  std::shared_ptr<const RedoxLayout> layout_;
  const OrderOptions requests_;
  const std::uint64_t steps_per_epoch_;
  const std::uint64_t batch_;  // of all ranks
  const std::uint64_t asked_;  // requests of an epoch
  std::optional<RedoxRequests> asks_;
  std::optional<RedoxProtocol> protocol_;
  std::optional<RedoxNodeStream> node_stream_;  // if nodes exchange samples
  Position next_;
  std::optional<std::uint64_t> epoch_;  // the epoch that was entered

  std::uint64_t issued_ = 0;          // reads of the stream
  std::uint64_t first_number_ = 0;    // of the first read that the stream saw issued in this epoch
  std::uint32_t entered_at_ = 0;      // the protocol's number of that read
  std::vector<std::uint32_t> again_;  // of those that are read again, ascending
  std::vector<SampleId> served_;      // in this step
  std::span<const std::uint32_t> slots_;  // of its requests

  std::uint64_t direct_reads_ = 0;
  std::uint64_t padded_ = 0;
  std::uint64_t read_again_ = 0;
};

}  // namespace

Result<std::unique_ptr<Order>> MakeRedoxOrder(const RedoxOrderOptions& options, Position start) {
  HEADRACE_ASSIGN_OR_RETURN(auto layout, CheckedLayout(options));
  HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps, StepsPerEpoch(Requests(options)));
  HEADRACE_RETURN_IF_ERROR(CheckStart(options.job, steps, start));
  std::vector<bool> members;
  std::vector<bool> repeats;
  if (options.trace != nullptr) {
    members.resize(layout->sample_count());
    if (options.trace->size() > kRequestsMax) {
      return InvalidArgument("trace of order redox: got {} samples, must be at most {}",
                             options.trace->size(), kRequestsMax);
    }
    repeats.resize(options.trace->size());
    for (std::size_t g = 0; g < repeats.size(); ++g) {
      const std::uint64_t sample = Raw((*options.trace)[g]);
      if (sample >= members.size()) {
        return InvalidArgument(
            "trace of order redox: names sample {} at position {}, the dataset has {}", sample, g,
            members.size());
      }
      repeats[g] = members[sample];
      members[sample] = true;
    }
  }
  return std::unique_ptr<Order>(
      std::make_unique<RedoxOrder>(options, std::move(layout), members, std::move(repeats), start));
}

Result<std::uint64_t> RedoxResidentUnits(const RedoxOrderOptions& options) {
  HEADRACE_ASSIGN_OR_RETURN(const auto layout, CheckedLayout(options));
  const std::vector<std::uint64_t> homes = UnitsOfHomes(*layout, options);
  std::uint64_t all = 0;
  for (const std::uint64_t each : homes) all += each;
  // A sample sent along frees its place at home, so both may fill up.
  const auto along = [&](std::uint64_t home) -> std::uint64_t {
    if (options.nodes == 1 || options.prefetch <= 1) return 0;
    const std::uint64_t remote = all - home;
    return options.remote_units == 0 ? remote : std::min(remote, options.remote_units);
  };
  std::uint64_t bound = 0;
  if (options.job.exchange) {
    const std::uint64_t home = homes[options.job.node()];
    bound = home + along(home) + (options.nodes == 1 ? 0 : layout->largest_sample());
  } else {
    bound = all;
    for (const std::uint64_t home : homes) bound += along(home);
  }
  if (options.memory_units != 0) bound = std::min(bound, options.memory_units);
  return std::min(bound, options.blocks->total_units());
}

}  // namespace headrace
