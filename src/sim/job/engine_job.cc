#include "sim/job/engine_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "sim/job/job_dataset.h"
#include "sim/job/job_node.h"
#include "sim/job/job_plan.h"
#include "sim/job/simulated_time.h"
#include "sim/job/sized_dataset.h"

namespace headrace {
namespace {

using From = SampleFetch::From;

void AddReadsAndDecodes(const LaneStats& lane, RankStages& rank) {
  rank.tier_seconds = static_cast<double>(lane.tier_read_ns) * 1e-9;
  rank.node_seconds = static_cast<double>(lane.node_read_ns) * 1e-9;
  rank.storage_seconds = static_cast<double>(lane.storage_read_ns) * 1e-9;
  rank.preprocess_seconds = static_cast<double>(lane.decode_ns) * 1e-9;
}

// All nodes of a job, from the first step to the last.
class EngineJob {
 public:
  EngineJob(const SimulatedJob& job, const EngineJobOptions& options)
      : job_(job),
        options_(options),
        data_(job),
        storage_(loop_, job.cluster.nodes,
                 EachRead(job.cluster, hurries_,
                          [&cluster = job.cluster](std::uint32_t nodes) {
                            return 1 / cluster.NodeFromStorage(nodes);
                          })),
        link_(loop_, job.cluster.nodes,
              EachRead(job.cluster, hurries_,
                       [rate = job.cluster.network_rate](std::uint32_t) { return rate; })),
        schema_{SizedField()},
        used_(job.sizes.size()) {
    for (const Cluster::Tier& tier : job.cluster.tiers) {
      shared_tiers_.push_back(tier.shared ? MakeShared(tier) : nullptr);
    }
  }

  Result<EngineJobResult> Run(const std::function<bool()>& keep_going) {
    Status status = MakeNodes(keep_going);
    for (auto node = nodes_.begin(); status.ok() && node != nodes_.end(); ++node) {
      status = (*node)->Start();
    }
    if (status.ok()) status = RunSteps(keep_going);
    hurries_ = true;
    storage_.Refresh();
    link_.Refresh();
    for (const std::unique_ptr<SharedRate>& tier : shared_tiers_) {
      if (tier != nullptr) tier->Refresh();
    }
    for (const std::unique_ptr<JobNode>& node : nodes_) node->Stop();
    while (loop_.RunOne()) {
    }
    if (status.ok()) Summarize();
    for (const std::unique_ptr<JobNode>& node : nodes_) node->Close();
    HEADRACE_RETURN_IF_ERROR(status);
    return std::move(result_);
  }

 private:
  // The nodes that read divide the rate of all of its parts.
  std::unique_ptr<SharedRate> MakeShared(const Cluster::Tier& tier) {
    return std::make_unique<SharedRate>(
        loop_, job_.cluster.nodes,
        EachRead(
            job_.cluster, hurries_,
            [rate = tier.rate * job_.cluster.nodes](std::uint32_t nodes) { return rate / nodes; }));
  }

  Status MakeNodes(const std::function<bool()>& keep_going) {
    HEADRACE_ASSIGN_OR_RETURN(const JobPlan plan, JobPlan::Make(job_, options_, data_));
    steps_per_epoch_ = plan.steps_per_epoch();
    const JobWorld world{.loop = loop_,
                         .job = job_,
                         .data = data_,
                         .storage = storage_,
                         .link = link_,
                         .shared_tiers = shared_tiers_,
                         .schema = schema_,
                         .hurries = hurries_,
                         .ranks = options_.ranks,
                         .lane_policies = plan.lane_policies(),
                         .reads_in_flight = plan.reads_in_flight(),
                         .storage_latency_ns = SimulatedNanos(job_.cluster.storage_latency_seconds),
                         .least_read_bytes = plan.least_read_bytes(),
                         .files = options_.files};
    std::vector<std::shared_ptr<const ResolvedOrder>> orders;
    for (NodeNumber number = 0; number < job_.cluster.nodes; ++number) {
      if (keep_going && !keep_going()) return SimulationEnded();
      NodePlan of_node{.room = plan.room(), .batches_max = plan.batches_max()};
      HEADRACE_ASSIGN_OR_RETURN(of_node.order, plan.OrderOf(number));
      orders.push_back(of_node.order);
      if (plan.room().has_value()) {
        HEADRACE_ASSIGN_OR_RETURN(
            of_node.placement, plan.placements()->Make(plan.RequestOf(of_node.order, keep_going)));
      }
      nodes_.push_back(std::make_unique<JobNode>(world, number, std::move(of_node), Others()));
    }
    HEADRACE_ASSIGN_OR_RETURN(result_.first_read_seconds, plan.FirstReadSeconds(orders));
    return Status();
  }

  TimedNodes::Others Others() {
    return {
        .take = [this](NodeNumber node, SampleId sample, std::uint64_t deadline,
                       TakenEntry done) { nodes_[node]->Give(sample, deadline, std::move(done)); },
        .take_part = [this](
                         NodeNumber from, NodeNumber to, const ParcelPart& part,
                         TakenParcel done) { nodes_[from]->GivePart(to, part, std::move(done)); }};
  }

  Status RunSteps(const std::function<bool()>& keep_going) {
    double epoch_begin = 0;
    for (std::uint64_t step = 0; step < steps_per_epoch_ * job_.epochs; ++step) {
      HEADRACE_RETURN_IF_ERROR(RunStep(step, keep_going));
      if ((step + 1) % steps_per_epoch_ != 0) continue;
      result_.run.epoch_seconds.push_back(now() - epoch_begin);
      epoch_begin = now();
    }
    return Status();
  }

  [[nodiscard]] double now() const { return static_cast<double>(loop_.now_ns()) * 1e-9; }

  // The step that runs, of all ranks. Events refer to it.
  struct RunningStep {
    std::int64_t begin_ns = 0;
    std::size_t left = 0;      // ranks that have not ended it
    std::vector<double> ends;  // seconds at which each rank has
    double slowest = 0;
    double ready_first = kUnlimited;  // of EngineJobResult::spread_seconds
    double ready_last = 0;
    std::vector<std::shared_ptr<Batch>> in_use;
  };

  // Nodes plan in it, each for long where a period of its placement begins.
  Status RunStep(std::uint64_t step, const std::function<bool()>& keep_going) {
    const std::size_t ranks = nodes_.size() * options_.ranks;
    running_ = {.begin_ns = loop_.now_ns(), .left = ranks, .ends = std::vector<double>(ranks)};
    result_.ranks.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      nodes_[rank / options_.ranks]->Take(
          static_cast<std::uint32_t>(rank % options_.ranks),
          [this, rank](std::shared_ptr<Batch> batch) { OnTaken(rank, std::move(batch)); });
    }
    while (running_.left > 0) {
      if (keep_going && !keep_going()) return SimulationEnded();
      if (!loop_.RunOne()) return Stuck(step);
      if (loop_.now_ns() > kSimulatedNanosMax) return TakesTooLong();
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double waited = now() - running_.ends[rank];
      result_.ranks[rank].barrier_seconds += waited;
      result_.run.barrier_seconds += waited;
    }
    HEADRACE_RETURN_IF_ERROR(Allreduce(step));
    const double begin = static_cast<double>(running_.begin_ns) * 1e-9;
    const double end = now();
    result_.run.step_seconds.push_back(end - begin);
    result_.least_seconds += running_.slowest + job_.cluster.allreduce_seconds;
    result_.spread_seconds.push_back(running_.ready_last - running_.ready_first);
    result_.run.seconds = end;
    running_.in_use.clear();
    return Status();
  }

  // Lets the time pass that follows the computing of a step. Reads go on meanwhile.
  Status Allreduce(std::uint64_t step) {
    if (job_.cluster.allreduce_seconds == 0) return Status();
    const double got = storage_.bytes() + link_.bytes();
    const double seconds = now() - std::exchange(computed_seconds_, now());
    const double allreduce = job_.cluster.Allreduce(got - std::exchange(got_bytes_, got), seconds);
    result_.run.allreduce_seconds += allreduce;
    bool ended = false;
    loop_.After(SimulatedNanos(allreduce), [&ended] { ended = true; });
    while (!ended) {
      if (!loop_.RunOne()) return Stuck(step);
    }
    return Status();
  }

  // A rank, of all nodes', has its batch, or, with null, its run has ended early.
  void OnTaken(std::size_t rank, std::shared_ptr<Batch> batch) {
    if (batch == nullptr) return;
    const double compute = ComputeSeconds(*batch);
    const double ready = std::max(compute, static_cast<double>(batch->times.busy_ns) * 1e-9);
    running_.ready_first = std::min(running_.ready_first, ready);
    running_.ready_last = std::max(running_.ready_last, ready);
    running_.in_use.push_back(std::move(batch));
    const double waited = static_cast<double>(loop_.now_ns() - running_.begin_ns) * 1e-9;
    result_.run.stall_seconds += waited;
    result_.run.compute_seconds += compute;
    result_.ranks[rank].wait_seconds += waited;
    result_.ranks[rank].train_seconds += compute;
    running_.slowest = std::max(running_.slowest, compute);
    loop_.After(SimulatedNanos(compute), [this, rank] {
      running_.ends[rank] = now();
      --running_.left;
    });
  }

  // Nothing is left to happen.
  [[nodiscard]] Status Stuck(std::uint64_t step) const {
    for (const std::unique_ptr<JobNode>& node : nodes_) {
      HEADRACE_RETURN_IF_ERROR(node->ended());
    }
    return FailedPrecondition(
        "simulating step {} of order '{}': nothing is left to happen; report this defect of "
        "headrace",
        step, options_.order);
  }

  // A rank has its part of the node's rate.
  double ComputeSeconds(const Batch& batch) {
    double seconds = 0;
    for (const SampleId sample : batch.samples) {
      used_[Raw(sample)] = true;
      used_bytes_ += job_.sizes[Raw(sample)];
      seconds += job_.cluster.Compute(job_.sizes[Raw(sample)]);
    }
    used_samples_ += batch.samples.size();
    return seconds * options_.ranks;
  }

  void Summarize() {
    SimulatedRun& run = result_.run;
    run.DivideBy(static_cast<double>(nodes_.size() * options_.ranks));
    FetchTotals& tier = run.fetched[static_cast<std::size_t>(From::kTier)];
    FetchTotals& peer = run.fetched[static_cast<std::size_t>(From::kPeer)];
    FetchTotals& storage = run.fetched[static_cast<std::size_t>(From::kStorage)];
    double read_bytes = 0;
    auto rank = result_.ranks.begin();
    for (const std::unique_ptr<JobNode>& node : nodes_) {
      const EngineStats stats = node->stats();
      for (const TierUses& uses : stats.tiers.uses) {
        tier.samples += uses.samples;
        tier.bytes += data_.scale * static_cast<double>(uses.bytes);
        result_.ahead_samples += uses.ahead;
      }
      peer.samples +=
          stats.tiers.node_uses - stats.tiers.node_fallbacks + stats.blocks.parcel_samples;
      peer.bytes +=
          data_.scale * static_cast<double>(stats.tiers.node_bytes + stats.blocks.parcel_bytes);
      for (const LaneStats& lane : stats.lanes) {
        for (std::size_t i = 0; i < kStallCauses; ++i) result_.stall_ns[i] += lane.stall_ns[i];
        AddReadsAndDecodes(lane, *rank++);
      }
      const StoreStats from_storage = node->storage();
      read_bytes += data_.scale * static_cast<double>(from_storage.bytes);
      result_.storage_reads += from_storage.reads;
      tier.seconds += node->tier_seconds();
      storage.seconds += node->latency_seconds();
    }
    for (const std::unique_ptr<SharedRate>& shared : shared_tiers_) {
      if (shared != nullptr) tier.seconds += shared->seconds();
    }
    storage.samples = used_samples_ - std::min(used_samples_, tier.samples + peer.samples);
    storage.bytes = std::max(0.0, used_bytes_ - tier.bytes - peer.bytes);
    storage.seconds += storage_.seconds();
    peer.seconds = link_.seconds();
    run.filled_bytes = std::max(0.0, read_bytes - storage.bytes);
    run.samples_used = static_cast<std::uint64_t>(std::ranges::count(used_, true));
  }

  const SimulatedJob& job_;
  const EngineJobOptions& options_;
  const JobDataset data_;
  SimLoop loop_;
  bool hurries_ = false;  // the run has ended
  SharedRate storage_;
  SharedRate link_;
  std::vector<std::unique_ptr<SharedRate>> shared_tiers_;  // by tier; null: each node's own
  const std::vector<BatchField> schema_;
  std::vector<std::unique_ptr<JobNode>> nodes_;
  std::uint64_t steps_per_epoch_ = 0;
  RunningStep running_;
  std::vector<bool> used_;
  double used_bytes_ = 0;
  // When the step before had computed, and what nodes had got over the network by then.
  double computed_seconds_ = 0;
  double got_bytes_ = 0;
  std::uint64_t used_samples_ = 0;
  EngineJobResult result_;
};

}  // namespace

Result<EngineJobResult> RunEngines(const SimulatedJob& job, const EngineJobOptions& options,
                                   const std::function<bool()>& keep_going) {
  HEADRACE_RETURN_IF_ERROR(job.Check());
  return EngineJob(job, options).Run(keep_going);
}

}  // namespace headrace
