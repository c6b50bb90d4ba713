#include "plan/papers/redox/redox_order.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "plan/order_factory.h"
#include "plan/papers/redox/redox_layout.h"
#include "plan/papers/redox/redox_protocol.h"
#include "plan/papers/redox/redox_requests.h"

namespace headrace {
namespace {

constexpr std::uint32_t kRequestsMax = 0xffff'ffff;  // of an epoch: reads are numbered by them

// The job as its epochs are cut into steps: by requests.
OrderOptions Requests(const RedoxOrderOptions& options) {
  OrderOptions job = options.job;
  if (options.trace != nullptr) job.sample_count = options.trace->size();
  return job;
}

Result<std::shared_ptr<const RedoxLayout>> CheckedLayout(const RedoxOrderOptions& options) {
  if (options.nodes == 0 || options.chunks_per_virtual == 0) {
    return InvalidArgument(
        "order redox: got nodes {} and chunks_per_virtual {}, both must be at least 1",
        options.nodes, options.chunks_per_virtual);
  }
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
        layout_(std::move(layout)),
        requests_(Requests(options_)),
        steps_per_epoch_(StepsPerEpoch(requests_).value()),
        batch_(requests_.batch_size * requests_.world_size),
        asked_(requests_.drop_last ? steps_per_epoch_ * batch_ : requests_.sample_count),
        asks_(options_, layout_, std::move(repeats)),
        protocol_(options_, layout_, members),
        next_(start) {}

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
    served_.clear();
    slots_ = asks_.Slots(begin, std::min(end, asked_));
    for (std::uint64_t g = begin; g < end; ++g) Deliver(g, begin, rows, step);
    AddReads(step);
    if (step.ends_epoch) EndEpoch(step);
    if (++next_.step == steps_per_epoch_) next_ = {.epoch = next_.epoch + 1, .step = 0};
    return step;
  }

  [[nodiscard]] std::map<std::string, double> counters() const override {
    const RedoxProtocol::Counts& counts = protocol_.counts();
    const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
    const auto ratio = [&](std::uint64_t part, double whole) {
      return whole == 0 ? 0 : number(part) / whole;
    };
    const double unit = number(options_.blocks->unit_bytes());
    const double epochs = ratio(counts.requests + direct_reads_, number(asked_));
    return {
        {"requests", number(counts.requests + direct_reads_)},
        {"misses", number(counts.misses)},
        {"loads_per_chunk", ratio(counts.misses, number(layout_->chunk_count()) * epochs)},
        {"fill_rate", ratio(counts.filled, number(counts.read_samples))},
        {"remote_reads", number(counts.remote_reads)},
        {"remote_requests", number(counts.remote_requests)},
        {"prefetched", number(counts.prefetched)},
        {"remote_bytes", number(counts.remote_units) * unit},
        {"peak_remote_bytes", number(counts.peak_remote_units) * unit},
        {"peak_resident_bytes", number(counts.peak_units) * unit},
        {"direct_reads", number(direct_reads_)},
        {"padded", number(padded_)},
        {"read_again", number(read_again_)},
    };
  }

 private:
  void EnterEpoch(Step& step) {
    if (epoch_ == next_.epoch) return;
    epoch_ = next_.epoch;
    asks_.Begin(next_.epoch);
    protocol_.Begin(next_.epoch);
    if (protocol_.looks_ahead()) Announce();
    first_number_ = issued_;
    again_.clear();
    entered_at_ = 0;
    if (next_.step != 0) RunUpTo(next_.step * batch_, step);
  }

  // Announces all requests of the epoch.
  void Announce() {
    for (std::uint64_t first = 0; first < asked_; first += kRunTogether) {
      const auto slots = asks_.Slots(first, std::min(asked_, first + kRunTogether));
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (i + kAhead < slots.size()) __builtin_prefetch(&layout_->slots()[slots[i + kAhead]]);
        if (!asks_.IsRepeat(first + i)) protocol_.Announce(asks_.NodeOf(first + i), slots[i]);
      }
    }
    protocol_.EndAnnouncements();
  }

  // Answers the request at position g of the step that begins at `begin`.
  RedoxResident Serve(std::uint64_t g, std::uint64_t begin) {
    const std::uint64_t i = g - begin;
    if (i + 2 * kAhead < slots_.size()) protocol_.ExpectSlot(slots_[i + 2 * kAhead]);
    if (i + kAhead < slots_.size()) protocol_.Expect(asks_.NodeOf(g + kAhead), slots_[i + kAhead]);
    return protocol_.Serve(asks_.NodeOf(g), slots_[i]);
  }

  // Applies the steps before `begin` to memory, without their deliveries. Each read gets the number
  // of its request: later reads have higher numbers, in whatever order requests are served.
  void RunUpTo(std::uint64_t begin, Step& step) {
    RedoxRanges ranges(*layout_);
    std::vector<RedoxRequest> run;
    for (std::uint64_t first = 0; first < begin; first += kRunTogether) {
      const auto slots = asks_.Slots(first, std::min(begin, first + kRunTogether));
      run.clear();
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (asks_.IsRepeat(first + i)) continue;
        run.push_back({.position = static_cast<std::uint32_t>(first + i), .slot = slots[i]});
      }
      if (protocol_.virtual_chunks_are_independent()) ranges.Sort(run);
      for (std::size_t i = 0; i < run.size(); ++i) {
        if (i + 2 * kAhead < run.size()) {
          const RedoxRequest soon = run[i + kAhead];
          protocol_.ExpectSlot(run[i + 2 * kAhead].slot);
          protocol_.Expect(asks_.NodeOf(soon.position), soon.slot);
        }
        protocol_.NumberReadsFrom(run[i].position);
        static_cast<void>(protocol_.Serve(asks_.NodeOf(run[i].position), run[i].slot));
      }
      protocol_.ForgetReads();
    }
    ReadAgain(begin, step);
  }

  // Adds reads of the samples that are resident after the request before `begin`.
  void ReadAgain(std::uint64_t begin, Step& step) {
    protocol_.ResetCounts();
    protocol_.NumberReadsFrom(static_cast<std::uint32_t>(begin));
    entered_at_ = static_cast<std::uint32_t>(begin);
    for (const RedoxResident& resident : protocol_.Residents()) {
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
    const RedoxProtocol::Reads& reads = protocol_.reads();
    std::size_t begin = 0;
    for (const RedoxProtocol::Read& each : reads.all) {
      BlockRead& read = step.reads.emplace_back(ReadOf(each.chunk));
      read.number = issued_++;
      const std::span kept = std::span(reads.kept).subspan(begin, each.kept_end - begin);
      begin = each.kept_end;
      if (kept.size() == read.count) continue;
      read.kept.assign(kept.begin(), kept.end());
      std::ranges::sort(read.kept);
    }
    protocol_.ForgetReads();
  }

  // The number in the stream of a read of this epoch.
  [[nodiscard]] std::uint64_t NumberOf(std::uint32_t read) const {
    if (read >= entered_at_) return first_number_ + (read - entered_at_);
    const auto found = std::ranges::lower_bound(again_, read);
    return first_number_ - again_.size() + static_cast<std::uint64_t>(found - again_.begin());
  }

  // Delivers the next sample, at position g of a step of `rows` rows a rank.
  void Deliver(std::uint64_t g, std::uint64_t begin, std::uint64_t rows, Step& step) {
    Delivery delivery;
    if (g >= asked_) {
      HEADRACE_CHECK(begin < asked_);  // Padding only fills up the last row, which has a request.
      delivery.sample = served_[(g - asked_) % (asked_ - begin)];
      ++padded_;
    } else if (asks_.IsRepeat(g)) {
      delivery.sample = asks_.Repeated(g);
      ++direct_reads_;
    } else {
      const RedoxResident answer = Serve(g, begin);
      delivery.sample = SampleId{answer.sample};
      delivery.block_read = NumberOf(answer.read);
    }
    if (g < asked_) served_.push_back(delivery.sample);
    delivery.rank = static_cast<std::uint32_t>(g % requests_.world_size);
    const std::uint32_t lane = delivery.rank - requests_.rank;  // Wraps around for lower ranks.
    if (lane < requests_.ranks) {
      delivery.slot = static_cast<std::uint32_t>((g - begin) / requests_.world_size);
      step.deliveries[lane * rows + delivery.slot] = delivery;
    } else if (delivery.block_read != kNoBlockRead) {
      step.releases.push_back({.block_read = delivery.block_read, .sample = delivery.sample});
    }
  }

  // Only with drop_last are there requests that are not made, and so samples left in memory.
  void EndEpoch(Step& step) {
    const std::vector<RedoxResident> left = protocol_.Residents();
    HEADRACE_CHECK(left.empty() || asked_ < requests_.sample_count);
    for (const RedoxResident& resident : left) {
      step.releases.push_back(
          {.block_read = NumberOf(resident.read), .sample = SampleId{resident.sample}});
    }
  }

  // Requests that are looked up together, outside of steps.
  static constexpr std::uint64_t kRunTogether = std::uint64_t{1} << 20;
  // Prefetches what a request needs this many requests ahead, and what leads there twice as many.
  static constexpr std::uint64_t kAhead = 8;

  const RedoxOrderOptions options_;
  const std::shared_ptr<const RedoxLayout> layout_;
  const OrderOptions requests_;
  const std::uint64_t steps_per_epoch_;
  const std::uint64_t batch_;  // of all ranks
  const std::uint64_t asked_;  // requests of an epoch
  RedoxRequests asks_;
  RedoxProtocol protocol_;
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

constexpr std::int64_t kCountMax = 0x7fff'ffff;
constexpr std::string_view kName = "redox";
constexpr std::int64_t kNodesMax = 4096;
constexpr std::int64_t kBytesMax = std::int64_t{1} << 60;

class Factory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return kName; }
  [[nodiscard]] bool reads_blocks() const override { return true; }
  [[nodiscard]] const OrderFactory* reproduces_requests_of() const override {
    return &ExactOrderFactory();
  }

  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    HEADRACE_RETURN_IF_ERROR(CheckedLayout(options).status());
    return resolved;
  }
  [[nodiscard]] Result<std::uint64_t> ResidentUnits(const OrderRequest& request) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    return RedoxResidentUnits(options);
  }
  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    OrderParameters resolved;
    HEADRACE_ASSIGN_OR_RETURN(const RedoxOrderOptions options, Read(request, resolved));
    return MakeRedoxOrder(options, start);
  }

 private:
  static Result<RedoxOrderOptions> Read(const OrderRequest& request, OrderParameters& resolved) {
    constexpr std::array<std::string_view, 2> kMappings = {"consecutive", "interleaved"};
    constexpr std::array<std::string_view, 2> kRefills = {"max_fill", "random"};
    constexpr std::array<std::string_view, 2> kTies = {"random", "first"};
    HEADRACE_CHECK(request.blocks != nullptr);
    if (!request.job.shuffle) {
      return InvalidArgument(
          "order redox: shuffle=False, but slots give whichever sample of theirs is in memory; use "
          "order 'exact' to have them in sequence, or shuffle=True");
    }
    ParameterReader reader(kName, request.parameters);
    const auto integer = [&](std::string_view name, std::int64_t otherwise, std::int64_t least,
                             std::int64_t most) {
      return static_cast<std::uint64_t>(reader.Integer(name, otherwise, least, most));
    };
    const auto count = [&](std::string_view name, std::int64_t otherwise, std::int64_t least,
                           std::int64_t most = kCountMax) {
      return static_cast<std::uint32_t>(integer(name, otherwise, least, most));
    };
    RedoxOrderOptions options;
    options.job = request.job;
    options.job.bijection_from = reader.BijectionFrom();
    options.blocks = request.blocks;
    options.chunks_per_virtual = count("chunks_per_virtual", 10, 1);
    options.mapping =
        RedoxOrderOptions::Mapping{static_cast<std::uint8_t>(reader.Choice("mapping", kMappings))};
    options.refill =
        RedoxOrderOptions::Refill{static_cast<std::uint8_t>(reader.Choice("refill", kRefills))};
    options.ties = RedoxOrderOptions::Ties{static_cast<std::uint8_t>(reader.Choice("ties", kTies))};
    options.slot_classes = count("slot_classes", 0, 0);
    options.nodes = count("nodes", 1, 1, kNodesMax);
    options.prefetch = count("prefetch", 0, 0);
    const std::uint64_t remote_bytes = integer("remote_bytes", 0, 0, kBytesMax);
    const std::uint64_t memory_bytes = integer("memory_bytes", 0, 0, kBytesMax);
    HEADRACE_ASSIGN_OR_RETURN(resolved, reader.Finish());
    HEADRACE_ASSIGN_OR_RETURN(options.remote_units,
                              Units("remote_bytes", remote_bytes, *request.blocks));
    HEADRACE_ASSIGN_OR_RETURN(options.memory_units,
                              Units("memory_bytes", memory_bytes, *request.blocks));
    return options;
  }

  // Whole units: a fraction of a unit could not be used.
  static Result<std::uint64_t> Units(std::string_view name, std::uint64_t bytes,
                                     const BlockMap& blocks) {
    const std::uint64_t unit = blocks.unit_bytes();
    if (bytes != 0 && bytes < unit) {
      return InvalidArgument(
          "{} of order redox: got {}, must be 0 (no limit) or at least {}, the bytes in which "
          "memory is counted",
          name, bytes, unit);
    }
    return bytes / unit;
  }
};

}  // namespace

const OrderFactory& RedoxOrderFactory() {
  static const Factory factory;
  return factory;
}

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
  const std::vector<std::uint64_t> homes = layout->UnitsOfHomes(options.nodes);
  std::uint64_t all = 0;
  for (const std::uint64_t each : homes) all += each;
  std::uint64_t bound = all;
  if (options.nodes > 1 && options.prefetch > 1) {
    // A sample sent along frees its place at home, so both may fill up.
    for (const std::uint64_t each : homes) {
      const std::uint64_t remote = all - each;
      bound += options.remote_units == 0 ? remote : std::min(remote, options.remote_units);
    }
  }
  if (options.memory_units != 0) bound = std::min(bound, options.memory_units);
  return std::min(bound, options.blocks->total_units());
}

}  // namespace headrace
