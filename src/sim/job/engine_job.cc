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
#include "sim/job/sized_dataset.h"

namespace headrace {
namespace {

using From = SampleFetch::From;

// All nodes of a job, from the first step to the last.
class EngineJob {
 public:
  EngineJob(const PublishedJob& job, const EngineJobOptions& options)
      : job_(job),
        options_(options),
        data_(job),
        storage_(loop_, job.cluster.nodes,
                 [&cluster = job.cluster](std::uint32_t nodes, std::uint64_t reads) {
                   const double of_node = 1 / cluster.NodeFromStorage(nodes);
                   return cluster.reads_share ? of_node / static_cast<double>(reads) : of_node;
                 }),
        link_(loop_, job.cluster.nodes,
              [&cluster = job.cluster](std::uint32_t /*nodes*/, std::uint64_t reads) {
                return cluster.reads_share ? cluster.network_rate / static_cast<double>(reads)
                                           : cluster.network_rate;
              }),
        schema_{SizedField()},
        used_(job.sizes.size()) {}

  Result<EngineJobResult> Run(const std::function<bool()>& keep_going) {
    HEADRACE_RETURN_IF_ERROR(MakeNodes());
    Status status;
    for (const std::unique_ptr<JobNode>& node : nodes_) {
      status = node->Start();
      HEADRACE_RETURN_IF_ERROR(status);
    }
    status = RunSteps(keep_going);
    for (const std::unique_ptr<JobNode>& node : nodes_) node->Stop();
    while (loop_.RunOne()) {
    }
    Summarize();
    for (const std::unique_ptr<JobNode>& node : nodes_) node->Close();
    HEADRACE_RETURN_IF_ERROR(status);
    return std::move(result_);
  }

 private:
  Status MakeNodes() {
    HEADRACE_ASSIGN_OR_RETURN(const JobPlan plan, JobPlan::Make(job_, options_, data_));
    steps_per_epoch_ = plan.steps_per_epoch();
    const JobWorld world{.loop = loop_,
                         .job = job_,
                         .data = data_,
                         .storage = storage_,
                         .link = link_,
                         .schema = schema_,
                         .ranks = options_.ranks,
                         .reads_in_flight = plan.reads_in_flight(),
                         .least_read_bytes = plan.least_read_bytes()};
    for (NodeNumber number = 0; number < job_.cluster.nodes; ++number) {
      NodePlan of_node{.room = plan.room(), .batches_max = plan.batches_max()};
      HEADRACE_ASSIGN_OR_RETURN(of_node.order, plan.OrderOf(number));
      if (plan.room().has_value()) {
        HEADRACE_ASSIGN_OR_RETURN(of_node.placement,
                                  plan.placements()->Make(plan.RequestOf(of_node.order)));
      }
      nodes_.push_back(std::make_unique<JobNode>(
          world, number, std::move(of_node),
          [this](NodeNumber node, SampleId sample, std::uint64_t deadline, TakenEntry done) {
            nodes_[node]->Give(sample, deadline, std::move(done));
          }));
    }
    return Status();
  }

  Status RunSteps(const std::function<bool()>& keep_going) {
    double epoch_begin = 0;
    for (std::uint64_t step = 0; step < steps_per_epoch_ * job_.epochs; ++step) {
      if (keep_going && !keep_going()) {
        return {StatusCode::kCancelled, "simulating: ended before its last step"};
      }
      HEADRACE_RETURN_IF_ERROR(RunStep(step));
      if ((step + 1) % steps_per_epoch_ != 0) continue;
      result_.run.epoch_seconds.push_back(now() - epoch_begin);
      epoch_begin = now();
    }
    return Status();
  }

  [[nodiscard]] double now() const { return static_cast<double>(loop_.now_ns()) * 1e-9; }

  Status RunStep(std::uint64_t step) {
    const std::int64_t begin_ns = loop_.now_ns();
    std::size_t left = nodes_.size() * options_.ranks;
    double ends = 0;
    double slowest = 0;
    std::vector<std::shared_ptr<Batch>> in_use;
    const auto taken = [&](std::shared_ptr<Batch> batch) {
      if (batch == nullptr) return;
      const double compute = ComputeSeconds(*batch);
      in_use.push_back(std::move(batch));
      result_.run.stall_seconds += static_cast<double>(loop_.now_ns() - begin_ns) * 1e-9;
      result_.run.compute_seconds += compute;
      slowest = std::max(slowest, compute);
      loop_.After(static_cast<std::int64_t>(compute * 1e9), [&] {
        ends += now();
        --left;
      });
    };
    for (const std::unique_ptr<JobNode>& node : nodes_) {
      for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) node->Take(rank, taken);
    }
    while (left > 0) {
      if (loop_.RunOne()) continue;
      return Stuck(step);
    }
    const double end = now();
    result_.run.barrier_seconds += end * static_cast<double>(in_use.size()) - ends;
    result_.run.step_seconds.push_back(end - static_cast<double>(begin_ns) * 1e-9);
    result_.least_seconds += slowest;
    result_.run.seconds = end;
    return Status();
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
    PublishedResult& run = result_.run;
    const auto ranks = static_cast<double>(nodes_.size() * options_.ranks);
    for (double* sum : {&run.compute_seconds, &run.stall_seconds, &run.barrier_seconds}) {
      *sum /= ranks;
    }
    FetchTotals& tier = run.fetched[static_cast<std::size_t>(From::kTier)];
    FetchTotals& peer = run.fetched[static_cast<std::size_t>(From::kPeer)];
    FetchTotals& storage = run.fetched[static_cast<std::size_t>(From::kStorage)];
    double read_bytes = 0;
    for (const std::unique_ptr<JobNode>& node : nodes_) {
      const EngineStats stats = node->stats();
      for (const TierUses& uses : stats.tiers.uses) {
        tier.samples += uses.samples;
        tier.bytes += data_.scale * static_cast<double>(uses.bytes);
      }
      peer.samples += stats.tiers.node_uses - stats.tiers.node_fallbacks;
      peer.bytes += data_.scale * static_cast<double>(stats.tiers.node_bytes);
      for (const LaneStats& lane : stats.lanes) {
        for (std::size_t i = 0; i < kStallCauses; ++i) result_.stall_ns[i] += lane.stall_ns[i];
      }
      read_bytes += data_.scale * static_cast<double>(node->storage_bytes());
    }
    storage.samples = used_samples_ - std::min(used_samples_, tier.samples + peer.samples);
    storage.bytes = std::max(0.0, used_bytes_ - tier.bytes - peer.bytes);
    storage.seconds = storage_.seconds();
    run.filled_bytes = std::max(0.0, read_bytes - storage.bytes);
    run.samples_used = static_cast<std::uint64_t>(std::ranges::count(used_, true));
  }

  const PublishedJob& job_;
  const EngineJobOptions& options_;
  const JobDataset data_;
  SimLoop loop_;
  SharedRate storage_;
  SharedRate link_;
  const std::vector<BatchField> schema_;
  std::vector<std::unique_ptr<JobNode>> nodes_;
  std::uint64_t steps_per_epoch_ = 0;
  std::vector<bool> used_;
  double used_bytes_ = 0;
  std::uint64_t used_samples_ = 0;
  EngineJobResult result_;
};

}  // namespace

Result<EngineJobResult> RunEngines(const PublishedJob& job, const EngineJobOptions& options,
                                   const std::function<bool()>& keep_going) {
  HEADRACE_RETURN_IF_ERROR(job.Check());
  return EngineJob(job, options).Run(keep_going);
}

}  // namespace headrace
