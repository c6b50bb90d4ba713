#include "sim/job/fast_job.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format/errors.h"
#include "engine/loop/engine_options.h"
#include "sim/job/job_dataset.h"
#include "sim/job/job_plan.h"
#include "sim/job/planned_blocks.h"
#include "sim/job/simulated_time.h"

namespace headrace {
namespace {

using From = SampleFetch::From;

// What a node reads for a step. Bytes are those of the job.
struct StepReads {
  double storage_work = 0;      // bytes whose time the reads take
  std::uint64_t own_reads = 0;  // of storage, for the node's own step
  std::vector<double> tier_bytes;
  double link_work = 0;        // seconds
  std::set<NodeNumber> asked;  // other nodes that read something for this one first

  void Clear(std::size_t tiers) {
    *this = StepReads();
    tier_bytes.resize(tiers);
  }
};

// When the block reads of a node end that are numbered `first` and beyond.
struct BlockReadsDone {
  std::uint64_t first = 0;
  std::deque<double> seconds;
};

// The queues of a node: until when each has work.
struct NodeQueues {
  double storage = 0;
  std::vector<double> tiers;
  double link = 0;
  double cores = 0;
  double own_seconds = 0;    // that storage takes for the step that runs
  double admitted = 0;       // since when there is room for the step that runs
  std::deque<double> taken;  // when the node took its newest batches; below JobPlan::batches_max()
  BlockReadsDone block_reads;
};

Status NotEstimated(const std::string& what) {
  return FailedPrecondition(
      "estimating step by step: got {}, which goes by single reads; simulate each read, or "
      "leave it out",
      what);
}

class FastJob {
 public:
  FastJob(const SimulatedJob& job, const EngineJobOptions& options)
      : job_(job),
        options_(options),
        data_(job),
        steps_(job.cluster.nodes),
        reads_(job.cluster.nodes),
        queues_(job.cluster.nodes),
        used_(job.sizes.size()) {
    for (NodeQueues& queues : queues_) queues.tiers.resize(job.cluster.tiers.size());
  }

  Result<EngineJobResult> Run(const std::function<bool()>& keep_going) {
    HEADRACE_RETURN_IF_ERROR(MakePlan(keep_going));
    const std::uint64_t steps = plan_->steps_per_epoch() * job_.epochs;
    double epoch_begin = 0;
    for (std::uint64_t step = 0; step < steps; ++step) {
      steps_left_ = steps - 1 - step;
      if (blocks_ != nullptr) blocks_->Next();
      if (keep_going && !keep_going()) return SimulationEnded();  // It may have planned for long.
      RunStep();
      if ((step + 1) % plan_->steps_per_epoch() != 0) continue;
      result_.run.epoch_seconds.push_back(result_.run.seconds - epoch_begin);
      epoch_begin = result_.run.seconds;
    }
    SimulatedRun& run = result_.run;
    run.DivideBy(job_.cluster.nodes * options_.ranks);
    run.samples_used = static_cast<std::uint64_t>(std::ranges::count(used_, true));
    return std::move(result_);
  }

 private:
  Status MakePlan(const std::function<bool()>& keep_going) {
    HEADRACE_ASSIGN_OR_RETURN(JobPlan plan, JobPlan::Make(job_, options_, data_));
    if (plan.exchanges()) {
      return NotEstimated(
          fmt::format("order '{}', whose nodes send each other samples", options_.order));
    }
    plan_.emplace(std::move(plan));
    std::vector<std::shared_ptr<const ResolvedOrder>> orders;
    for (NodeNumber node = 0; node < job_.cluster.nodes; ++node) {
      if (keep_going && !keep_going()) return SimulationEnded();
      HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const ResolvedOrder> order, plan_->OrderOf(node));
      HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> made, order->MakeOrder({}));
      orders_.push_back(std::move(made));
      orders.push_back(std::move(order));
    }
    HEADRACE_ASSIGN_OR_RETURN(result_.first_read_seconds, plan_->FirstReadSeconds(orders));
    const std::shared_ptr<const ResolvedOrder>& first = orders.front();
    reads_blocks_ = first->reads_blocks();
    if (!plan_->room().has_value()) return Status();
    HEADRACE_ASSIGN_OR_RETURN(
        blocks_, PlannedBlocks::Make(*plan_->placements(), plan_->RequestOf(first, keep_going)));
    return Status();
  }

  void RunStep() {
    const double begin = result_.run.seconds;
    double end = begin;
    double slowest = 0;
    double ends = 0;
    for (NodeNumber node = 0; node < job_.cluster.nodes; ++node) Admit(node);
    PlanReads();
    ReadStorage();
    for (NodeNumber node = 0; node < job_.cluster.nodes; ++node) {
      const double ready = std::max(begin, Ready(node));
      queues_[node].taken.push_back(ready);
      for (const double compute : ComputeOfRanks(node)) {
        result_.run.compute_seconds += compute;
        result_.run.stall_seconds += ready - begin;
        slowest = std::max(slowest, compute);
        end = std::max(end, ready + compute);
        ends += ready + compute;
      }
    }
    result_.run.barrier_seconds += end * job_.cluster.nodes * options_.ranks - ends;
    result_.run.allreduce_seconds += job_.cluster.allreduce_seconds;
    end += job_.cluster.allreduce_seconds;
    result_.run.step_seconds.push_back(end - begin);
    result_.least_seconds += slowest + job_.cluster.allreduce_seconds;
    result_.run.seconds = end;
  }

  // Room for a step is free once the batch before those that a node has ahead was taken.
  void Admit(NodeNumber node) {
    NodeQueues& queues = queues_[node];
    if (queues.taken.size() < plan_->batches_max()) return;
    queues.admitted = queues.taken.front();
    queues.taken.pop_front();
  }

  // What each node reads for the next step, by its order and the placement.
  void PlanReads() {
    for (StepReads& reads : reads_) reads.Clear(job_.cluster.tiers.size());
    for (NodeNumber node = 0; node < job_.cluster.nodes; ++node) {
      std::optional<Step> step = orders_[node]->Next();
      HEADRACE_CHECK(step.has_value());
      steps_[node] = *std::move(step);
      ReadAhead(node, queues_[node].admitted);
      AddReadsOf(node, steps_[node]);
    }
  }

  // Seconds that each rank computes on its batch, at its part of the node's rate.
  std::vector<double> ComputeOfRanks(NodeNumber node) {
    std::vector<double> seconds(options_.ranks);
    for (const Delivery& delivery : steps_[node].deliveries) {
      used_[Raw(delivery.sample)] = true;
      seconds[delivery.rank - node * options_.ranks] +=
          job_.cluster.Compute(job_.sizes[Raw(delivery.sample)]) * options_.ranks;
    }
    return seconds;
  }

  // When the batches of the step are there.
  double Ready(NodeNumber node) {
    const Step& step = steps_[node];
    double read = Read(node);
    if (reads_blocks_) read = AwaitBlocks(node, step, read);
    double sum = 0;
    for (const Delivery& delivery : step.deliveries) sum += job_.sizes[Raw(delivery.sample)];
    const double cost = job_.cluster.ToStaging();
    const double last = sum / static_cast<double>(std::max<std::size_t>(1, step.deliveries.size()));
    NodeQueues& queues = queues_[node];
    const double decoded = std::max(queues.cores, queues.admitted) +
                           sum * cost / static_cast<double>(job_.cluster.staging_threads);
    queues.cores = std::max(decoded, read + last * cost);
    const double waited = std::max(0.0, queues.cores - result_.run.seconds);
    const StallCause cause =
        decoded > read + last * cost ? StallCause::kDecode : StallCause::kStorage;
    result_.stall_ns[static_cast<std::size_t>(cause)] +=
        static_cast<std::int64_t>(waited * options_.ranks * 1e9);
    return queues.cores;
  }

  // Reads that each have all of a rate, of so many.
  [[nodiscard]] double AtATime(std::uint32_t reads) const {
    return job_.cluster.reads_share ? 1 : reads;
  }

  // The nodes that read storage for this step divide it until each has what it reads.
  void ReadStorage() {
    std::vector<std::pair<double, NodeNumber>> works;
    std::uint32_t others = 0;  // that still read for steps before
    for (NodeNumber node = 0; node < job_.cluster.nodes; ++node) {
      if (reads_[node].storage_work > 0) {
        works.emplace_back(reads_[node].storage_work, node);
      } else {
        others += static_cast<std::uint32_t>(queues_[node].storage > queues_[node].admitted);
      }
    }
    std::ranges::sort(works);
    double seconds = 0;
    double before = 0;
    for (std::size_t i = 0; i < works.size(); ++i) {
      const auto [work, node] = works[i];
      const auto readers = static_cast<std::uint32_t>(works.size() - i) + others;
      seconds += (work - std::exchange(before, work)) * job_.cluster.NodeFromStorage(readers);
      NodeQueues& queues = queues_[node];
      queues.own_seconds = seconds;
      queues.storage =
          std::max(queues.storage, queues.admitted) + seconds / AtATime(plan_->reads_in_flight());
      AddSeconds(From::kStorage, seconds);
    }
  }

  // Where reads share storage, a read of this step ends together with those that are in flight
  // beside it. These are of later steps, if the node has room for them by then.
  [[nodiscard]] double BehindSeconds(NodeNumber node) const {
    if (!job_.cluster.reads_share || reads_blocks_) return 0;
    const NodeQueues& queues = queues_[node];
    const auto without_room = static_cast<std::uint64_t>(
        std::ranges::count_if(queues.taken, [&](double taken) { return taken > queues.storage; }));
    const std::uint64_t steps = std::min(plan_->batches_max() - 1 - without_room, steps_left_);
    const std::uint64_t reads =
        std::min<std::uint64_t>(plan_->reads_in_flight() - 1, steps * reads_[node].own_reads);
    const auto own = static_cast<double>(reads_[node].own_reads);
    return static_cast<double>(reads) * queues.own_seconds / own;
  }

  // When the node has read all for the step, from sources that each take one step after the other.
  double Read(NodeNumber node) {
    NodeQueues& queues = queues_[node];
    const StepReads& reads = reads_[node];
    double done = queues.admitted;
    if (reads.own_reads > 0) done = std::max(done, queues.storage + BehindSeconds(node));
    for (const NodeNumber holder : reads.asked) done = std::max(done, queues_[holder].storage);
    for (std::size_t tier = 0; tier < reads.tier_bytes.size(); ++tier) {
      if (reads.tier_bytes[tier] == 0) continue;
      queues.tiers[tier] = std::max(queues.tiers[tier], queues.admitted) +
                           reads.tier_bytes[tier] * job_.cluster.FromTier(tier) /
                               AtATime(engine_.reads_in_flight_max);
      done = std::max(done, queues.tiers[tier]);
    }
    if (reads.link_work > 0) {
      queues.link = std::max(queues.link, queues.admitted) +
                    reads.link_work / AtATime(engine_.reads_in_flight_max);
      done = std::max(done, queues.link);
    }
    return done;
  }

  // The block reads of a step end together. A step needs those that it draws from, and those that
  // are due.
  double AwaitBlocks(NodeNumber node, const Step& step, double read) {
    BlockReadsDone& done = queues_[node].block_reads;
    for (const BlockRead& each : step.reads) {
      HEADRACE_CHECK(each.number == done.first + done.seconds.size());
      done.seconds.push_back(read);
    }
    std::uint64_t needed = step.reads_due;
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read != kNoBlockRead) needed = std::max(needed, delivery.block_read + 1);
    }
    if (needed == 0) return 0;
    // Later steps need at least these: `done.first` stays below what is due.
    for (; done.first + 1 < step.reads_due; ++done.first) done.seconds.pop_front();
    return done.seconds[needed - 1 - done.first];
  }

  [[nodiscard]] double WorkOf(double bytes) const {
    return std::max(bytes, plan_->least_read_bytes());
  }

  // Adds a read of storage for the node's own step.
  void AddRead(NodeNumber node, double bytes) {
    ++reads_[node].own_reads;
    ++result_.storage_reads;
    reads_[node].storage_work += WorkOf(bytes);
  }

  // Adds the reads of a block's kept samples: in pieces, with small gaps between them.
  void AddBlock(NodeNumber node, const BlockRead& block) {
    const std::size_t count = block.whole || block.kept.empty() ? block.count : block.kept.size();
    double piece = 0;
    std::uint32_t next = 0;  // place in the block
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t place =
          count == block.count ? static_cast<std::uint32_t>(i) : block.kept[i];
      double gap = 0;
      for (; next < place; ++next) gap += job_.sizes[Raw(block.first) + next];
      const double bytes = job_.sizes[Raw(block.first) + next++];
      if (piece > 0 && (options_.files || gap > static_cast<double>(engine_.block_gap_bytes) ||
                        piece + gap + bytes > static_cast<double>(engine_.block_read_bytes_max))) {
        AddRead(node, piece);
        piece = 0;
      }
      piece += piece > 0 ? gap + bytes : bytes;
    }
    if (piece > 0) AddRead(node, piece);
  }

  // Adds reads of single samples; where reads share storage, neighbours are one, as in an engine.
  void AddSamples(NodeNumber node, std::vector<SampleId> samples) {
    if (job_.cluster.reads_share) std::ranges::sort(samples);
    double piece = 0;
    std::uint64_t end = 0;  // of the piece, in the object
    for (const SampleId sample : samples) {
      const double bytes = job_.sizes[Raw(sample)];
      const ByteRange range = data_.index->extent(0, sample).value().range;
      const double gap =
          static_cast<double>(range.offset - std::min(range.offset, end)) * data_.scale;
      const bool is_near = job_.cluster.reads_share && !options_.files &&
                           gap <= static_cast<double>(engine_.coalesce_gap_bytes) &&
                           piece + gap + bytes <= static_cast<double>(engine_.coalesce_bytes_max);
      if (piece > 0 && !is_near) AddRead(node, std::exchange(piece, 0));
      piece += piece > 0 ? gap + bytes : bytes;
      end = std::max(end, range.end());
    }
    if (!samples.empty()) AddRead(node, piece);
  }

  [[nodiscard]] double KeptBytes(const BlockRead& block) const {
    const std::size_t kept = block.kept.empty() ? block.count : block.kept.size();
    double bytes = 0;
    for (std::uint32_t i = 0; i < kept; ++i) bytes += job_.sizes[Raw(KeptSampleId(block, i))];
    return bytes;
  }

  void AddSeconds(From from, double seconds) {
    result_.run.fetched[static_cast<std::size_t>(from)].seconds += seconds;
  }

  void Count(From from, std::uint64_t samples, double bytes) {
    FetchTotals& totals = result_.run.fetched[static_cast<std::size_t>(from)];
    totals.samples += samples;
    totals.bytes += bytes;
  }

  // What the node reads for a step: its block reads, then the samples that no block read brings;
  // each is one use of the placement.
  void AddReadsOf(NodeNumber node, const Step& step) {
    std::size_t use = 0;
    for (const BlockRead& block : step.reads) {
      const std::size_t kept = block.kept.empty() ? block.count : block.kept.size();
      const double bytes = KeptBytes(block);
      const From from = Planned(node, use++, bytes);
      if (from == From::kStorage) AddBlock(node, block);
      Count(from, kept, bytes);
    }
    std::vector<SampleId> stored;  // to be read from storage
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read != kNoBlockRead) continue;
      const double bytes = job_.sizes[Raw(delivery.sample)];
      const From from = Planned(node, use++, bytes);
      if (from == From::kStorage) stored.push_back(delivery.sample);
      Count(from, 1, bytes);
    }
    AddSamples(node, std::move(stored));
    if (blocks_ != nullptr) blocks_->EndStep(node, /*ahead=*/!reads_blocks_);
  }

  // The source of a use; adds the work of other sources than storage.
  From Planned(NodeNumber node, std::size_t number, double bytes) {
    using Kind = PlannedBlocks::Source::Kind;
    if (blocks_ == nullptr) return From::kStorage;
    const PlannedBlocks::Source source = blocks_->TakeUse(node, number);
    if (source.kind == Kind::kStorage) return From::kStorage;
    if (source.kind == Kind::kTier) {
      reads_[node].tier_bytes[source.tier] += bytes;
      AddSeconds(From::kTier, bytes * job_.cluster.FromTier(source.tier));
      return From::kTier;
    }
    if (source.reads_first) {
      reads_[source.node].storage_work += WorkOf(bytes);
      reads_[node].asked.insert(source.node);
      result_.run.filled_bytes += bytes;
      ++result_.storage_reads;
    }
    const double seconds = bytes * job_.cluster.FromPeer(source.tier);
    reads_[node].link_work += seconds;
    AddSeconds(From::kPeer, seconds);
    return From::kPeer;
  }

  // Storage has nothing to read for this node until `until`: it reads for the tiers.
  void ReadAhead(NodeNumber node, double until) {
    if (blocks_ == nullptr) return;
    double& storage = queues_[node].storage;
    while (storage < until) {
      const std::optional<std::uint32_t> block = blocks_->TakeAhead(node);
      if (!block.has_value()) return;
      std::uint32_t readers = 1;
      for (NodeNumber other = 0; other < job_.cluster.nodes; ++other) {
        readers += static_cast<std::uint32_t>(other != node && queues_[other].storage > storage);
      }
      const double bytes = job_.sizes[*block];  // Only blocks of one sample are read ahead.
      storage +=
          WorkOf(bytes) * job_.cluster.NodeFromStorage(readers) / AtATime(plan_->reads_in_flight());
      result_.run.filled_bytes += bytes;
      ++result_.storage_reads;
    }
  }

  const SimulatedJob& job_;
  const EngineJobOptions& options_;
  const JobDataset data_;
  const EngineOptions engine_;  // what engines read as one, and have in flight
  std::optional<JobPlan> plan_;
  std::vector<std::unique_ptr<Order>> orders_;  // by node
  std::vector<Step> steps_;                     // by node: the one that runs,
  std::vector<StepReads> reads_;                // and what is read for it
  std::unique_ptr<PlannedBlocks> blocks_;       // null: no tiers
  bool reads_blocks_ = false;
  std::uint64_t steps_left_ = 0;  // after the one that runs
  std::vector<NodeQueues> queues_;
  std::vector<bool> used_;
  EngineJobResult result_;
};

}  // namespace

Result<EngineJobResult> RunFast(const SimulatedJob& job, const EngineJobOptions& options,
                                const std::function<bool()>& keep_going) {
  HEADRACE_RETURN_IF_ERROR(job.Check());
  if (options.ranks > 1 && options.schedule != DefaultLanePolicy()) {
    return NotEstimated(fmt::format("schedule '{}'", options.schedule));
  }
  if (job.cluster.storage_latency_seconds > 0) {
    return NotEstimated(
        fmt::format("a latency of storage of {} s", job.cluster.storage_latency_seconds));
  }
  if (job.cluster.allreduce_seconds > 0 && job.cluster.allreduce_noise > 0) {
    return NotEstimated(fmt::format("noise of allreduces of {}", job.cluster.allreduce_noise));
  }
  return FastJob(job, options).Run(keep_going);
}

}  // namespace headrace
