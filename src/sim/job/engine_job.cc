#include "sim/job/engine_job.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format/errors.h"
#include "base/units.h"
#include "sim/job/job_dataset.h"
#include "sim/job/job_node.h"
#include "sim/job/sized_dataset.h"

namespace headrace {
namespace {

constexpr std::uint64_t kBatchesMax = 64;  // that a node has ahead, as a loader by default
constexpr std::uint64_t kUnitsMax = 0xffff'ffff;  // of a tier
// Of staging, for what an order keeps resident: the rest is for batches.
constexpr double kResidentShare = 0.75;

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
              [rate = job.cluster.network_rate](std::uint32_t, std::uint64_t) { return rate; }),
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
    HEADRACE_ASSIGN_OR_RETURN(const OrderSpec spec, MakeSpec());
    const Cluster& cluster = job_.cluster;
    std::optional<TierRoom> room;
    const JobWorld world{.loop = loop_,
                         .job = job_,
                         .data = data_,
                         .storage = storage_,
                         .link = link_,
                         .schema = schema_,
                         .ranks = options_.ranks,
                         .reads_in_flight = options_.reads_in_flight,
                         .least_read_bytes = LeastReadBytes()};
    for (NodeNumber number = 0; number < cluster.nodes; ++number) {
      NodePlan plan;
      HEADRACE_ASSIGN_OR_RETURN(plan.order, MakeOrder(number, spec));
      HEADRACE_ASSIGN_OR_RETURN(plan.batches_max, BatchesMax(*plan.order));
      if (!cluster.tiers.empty()) {
        if (!room.has_value()) {
          HEADRACE_ASSIGN_OR_RETURN(room, MakeRoom(*plan.order));
        }
        plan.room = room;
        HEADRACE_ASSIGN_OR_RETURN(const PlacementFactory* const placements,
                                  Placements().Get(options_.placement));
        HEADRACE_ASSIGN_OR_RETURN(
            plan.placement,
            placements->Make(MakePlacementRequest(plan.order, *room, job_.epochs, Position())));
      }
      nodes_.push_back(std::make_unique<JobNode>(
          world, number, std::move(plan),
          [this](NodeNumber node, SampleId sample, std::uint64_t deadline, TakenEntry done) {
            nodes_[node]->Give(sample, deadline, std::move(done));
          }));
    }
    return Status();
  }

  // In the units of the scaled dataset.
  [[nodiscard]] Result<OrderSpec> MakeSpec() const {
    OrderSpec spec{.name = options_.order, .parameters = options_.parameters};
    HEADRACE_ASSIGN_OR_RETURN(const OrderFactory* const factory, Orders().Get(spec.name));
    if (factory->takes_costs()) spec.costs = Costs();
    if (factory->reads_blocks()) {
      const double bytes = static_cast<double>(kBlockBytes) / (data_.mean_bytes * data_.scale);
      spec.parameters.emplace(
          "block_samples",
          static_cast<std::int64_t>(std::clamp(bytes, 1.0, static_cast<double>(kNeighboursMax))));
    }
    const auto budget = spec.parameters.find(factory->budget_parameter());
    if (budget == spec.parameters.end()) return spec;
    if (auto* const bytes = std::get_if<std::int64_t>(&budget->second)) {
      *bytes = static_cast<std::int64_t>(static_cast<double>(*bytes) / data_.scale);
    }
    return spec;
  }

  [[nodiscard]] double LeastReadBytes() const {
    double best = 0;
    for (const Curve::Point& point : job_.cluster.storage.points()) {
      best = std::max(best, point.rate);
    }
    return best / options_.reads_per_second;
  }

  [[nodiscard]] SampleTable Costs() const {
    auto costs = std::make_shared<std::vector<std::uint32_t>>();
    costs->reserve(job_.sizes.size());
    const double largest = *std::ranges::max_element(job_.sizes);
    const double scale = std::min(1.0, static_cast<double>(UINT32_MAX - 1) / largest);
    for (const double size : job_.sizes) {
      costs->push_back(static_cast<std::uint32_t>(size * scale + 0.5));
    }
    return costs;
  }

  [[nodiscard]] Result<std::shared_ptr<const ResolvedOrder>> MakeOrder(
      NodeNumber number, const OrderSpec& spec) const {
    OrderOptions job{.sample_count = job_.sizes.size(),
                     .batch_size = job_.batch_size,
                     .world_size = job_.cluster.nodes * options_.ranks,
                     .rank = number * options_.ranks,
                     .ranks = options_.ranks,
                     .seed = job_.seed,
                     .drop_last = true,
                     .epochs = job_.epochs};
    HEADRACE_ASSIGN_OR_RETURN(ResolvedOrder order, ResolvedOrder::Make(data_.index, job, spec));
    HEADRACE_RETURN_IF_ERROR(
        order.Settle(data_.Scaled(kResidentShare * job_.cluster.staging_bytes)));
    return std::make_shared<const ResolvedOrder>(std::move(order));
  }

  [[nodiscard]] Result<std::uint32_t> BatchesMax(const ResolvedOrder& order) const {
    const double staging = job_.cluster.staging_bytes / data_.scale;
    const double resident =
        order.reads_blocks()
            ? static_cast<double>(order.resident_units()) * static_cast<double>(order.unit_bytes())
            : 0;
    if (resident > staging) {
      return FailedPrecondition(
          "order '{}' keeps {} resident, and staging has {}", options_.order,
          FormatBytes(static_cast<std::uint64_t>(resident * data_.scale)),
          FormatBytes(static_cast<std::uint64_t>(job_.cluster.staging_bytes)));
    }
    const double batch = data_.mean_bytes * static_cast<double>(job_.batch_size) * options_.ranks;
    // One is in use.
    const double ahead = std::clamp((staging - resident) / std::max(batch, 1.0) - 1, 1.0,
                                    static_cast<double>(kBatchesMax));
    return static_cast<std::uint32_t>(ahead);
  }

  // Units are as small as numbers of them may be: nothing is lost to rounding.
  [[nodiscard]] Result<TierRoom> MakeRoom(const ResolvedOrder& order) const {
    std::uint64_t unit_bytes = 1;
    for (const Cluster::Tier& tier : job_.cluster.tiers) {
      while (data_.Scaled(tier.bytes) / unit_bytes >= kUnitsMax) unit_bytes *= 2;
    }
    std::uint64_t block_samples = 1;
    if (order.reads_blocks()) {
      HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const BlockMap> blocks,
                                order.CacheBlocks(data_.index, kUnitBytesMin));
      block_samples = blocks->block(0).count;
    }
    TierRoom room{.blocks = MakeSizedBlocks(data_.index, block_samples, unit_bytes)};
    for (const Cluster::Tier& tier : job_.cluster.tiers) {
      room.capacity_units.push_back(data_.Scaled(tier.bytes) / unit_bytes);
    }
    return room;
  }

  Status RunSteps(const std::function<bool()>& keep_going) {
    HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t steps_per_epoch,
                              StepsPerEpoch({.sample_count = job_.sizes.size(),
                                             .batch_size = job_.batch_size,
                                             .world_size = job_.cluster.nodes * options_.ranks,
                                             .drop_last = true}));
    double epoch_begin = 0;
    for (std::uint64_t step = 0; step < steps_per_epoch * job_.epochs; ++step) {
      if (keep_going && !keep_going()) {
        return {StatusCode::kCancelled, "simulating: ended before its last step"};
      }
      HEADRACE_RETURN_IF_ERROR(RunStep(step));
      if ((step + 1) % steps_per_epoch != 0) continue;
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

  double ComputeSeconds(const Batch& batch) {
    double bytes = 0;
    for (const SampleId sample : batch.samples) {
      used_[Raw(sample)] = true;
      bytes += job_.sizes[Raw(sample)];
    }
    used_bytes_ += bytes;
    used_samples_ += batch.samples.size();
    return bytes * options_.ranks / job_.cluster.compute_rate;
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
  std::vector<bool> used_;
  double used_bytes_ = 0;
  std::uint64_t used_samples_ = 0;
  EngineJobResult result_;
};

}  // namespace

Result<EngineJobResult> RunEngines(const PublishedJob& job, const EngineJobOptions& options,
                                   const std::function<bool()>& keep_going) {
  HEADRACE_RETURN_IF_ERROR(job.Check());
  if (options.ranks == 0 || !(options.reads_per_second > 0)) {
    return InvalidArgument("simulating: got {} ranks a node and {} reads a second; both must be above 0",
                           options.ranks, options.reads_per_second);
  }
  return EngineJob(job, options).Run(keep_going);
}

}  // namespace headrace
