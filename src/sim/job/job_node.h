#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/lanes/decode_times.h"
#include "engine/lanes/lane_policies.h"
#include "headrace/batch.h"
#include "loader/config/resolved_order.h"
#include "loader/planning/tier_room.h"
#include "sim/job/job_dataset.h"
#include "sim/job/shared_rate.h"
#include "sim/job/timed_nodes.h"
#include "sim/job/timed_store.h"
#include "sim/job/timed_tier.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"

namespace headrace {

// What each read gets of a rate that is `of_user(users)` bytes a second for each of `users`: its
// part of that, or all (Cluster::reads_share); no limit once `hurries` is set. The arguments
// outlive the result.
SharedRate::EachRate EachRead(const Cluster& cluster, const bool& hurries,
                              std::function<double(std::uint32_t users)> of_user);

// What the nodes of a simulated job share. All of it outlives them.
struct JobWorld {
  SimLoop& loop;
  const SimulatedJob& job;
  const JobDataset& data;
  SharedRate& storage;  // its users are the nodes
  SharedRate& link;     // its users are the nodes that get
  // By tier; null: each node's own.
  std::span<const std::unique_ptr<SharedRate>> shared_tiers;
  std::span<const BatchField> schema;
  // Set when a run has ended: what is under way takes no time from then on.
  const bool& hurries;
  std::uint32_t ranks = 1;  // of a node
  const LanePolicyFactory* lane_policies = nullptr;
  std::uint32_t reads_in_flight = 0;  // of storage, of each node
  // Of each read of storage: until its bytes come, and the bytes charged at least.
  std::int64_t storage_latency_ns = 0;
  double least_read_bytes = 0;
  bool files = false;  // whether each sample is one
};

// The plan of a node, and the memory that it takes.
struct NodePlan {
  std::shared_ptr<const ResolvedOrder> order;
  std::optional<TierRoom> room;  // nothing: no tiers
  std::unique_ptr<Placement> placement;
  std::uint32_t batches_max = 1;
};

// A rank of a simulated node, which takes the batches of its lane.
class JobRank final : public BatchSink {
 public:
  using Taken = std::function<void(std::shared_ptr<Batch>)>;

  JobRank(SimLoop& loop, std::uint32_t lane) : loop_(loop), lane_(lane) {}

  // Calls `taken` from the loop once there is the next batch; with null if the run has ended.
  void Take(Engine& engine, Taken taken);

  void OnBatch(std::shared_ptr<Batch> batch) override;
  void OnEnd(Status status) override;
  [[nodiscard]] const std::optional<Status>& ended() const { return ended_; }

 private:
  void Answer();

  SimLoop& loop_;
  const std::uint32_t lane_;
  Engine* engine_ = nullptr;
  std::deque<std::shared_ptr<Batch>> ready_;
  std::optional<Status> ended_;
  Taken taken_;  // empty: it does not wait
};

// What a simulated node's tasks take, and how many of its cores were busy meanwhile.
class TimedDecodes final : public DecodeObserver {
 public:
  explicit TimedDecodes(const SimExecutor& executor) : executor_(executor) {}

  void OnDecoded(const Decoded& decoded) override;
  [[nodiscard]] DecodeTimes& times() { return times_; }

 private:
  const SimExecutor& executor_;
  DecodeTimes times_{/*transform=*/0, PreprocessModel()};
};

// A node of a simulated job: its engine and its ranks.
//
// Thread safety: none; a simulation is one thread.
// Shutdown: Stop(), then the loop runs until it is idle, then Close().
class JobNode {
 public:
  JobNode(const JobWorld& world, NodeNumber number, NodePlan plan, TimedNodes::Others others);
  ~JobNode();
  JobNode(const JobNode&) = delete;
  JobNode& operator=(const JobNode&) = delete;

  // Errors: those of making the order; ResourceExhausted  no memory for what it keeps resident
  Status Start();
  // JobRank::Take() of a rank of the node.
  void Take(std::uint32_t rank, JobRank::Taken taken) {
    ranks_[rank]->Take(*engine_, std::move(taken));
  }
  // HeldSamples::Take(), TakeParcel().
  void Give(SampleId sample, std::uint64_t deadline, TakenEntry done);
  void GivePart(NodeNumber to, const ParcelPart& part, TakenParcel done) {
    engine_->TakeParcel(to, part, std::move(done));
  }
  // Both whether the node was started or not. The run hurries by then.
  void Stop();
  void Close();

  // Why the run ended early; OK: it did not.
  [[nodiscard]] Status ended() const;
  [[nodiscard]] EngineStats stats() const { return engine_->stats(); }
  // That reads of its own tiers took, all together.
  [[nodiscard]] double tier_seconds() const;
  [[nodiscard]] StoreStats storage() const { return store_.stats(); }
  // Of all reads of storage, before their bytes came.
  [[nodiscard]] double latency_seconds() const {
    return static_cast<double>(store_.stats().reads) *
           static_cast<double>(world_.storage_latency_ns) * 1e-9;
  }

 private:
  void MakePolicy();
  void MakeTiers();
  [[nodiscard]] EngineParts Parts();
  [[nodiscard]] EngineOptions Options() const;

  const JobWorld world_;
  const NodeNumber number_;
  NodePlan plan_;
  TimedStore store_;
  TimedNodes nodes_;
  SimExecutor executor_;
  TimedDecodes decodes_;
  LanePolicyFactory::MakePolicy make_policy_;            // outlives policy_
  std::unique_ptr<LanePolicy> policy_;                   // null: ranks share everything
  std::vector<std::unique_ptr<SharedRate>> tier_rates_;  // outlive the tiers
  std::vector<std::unique_ptr<TimedTier>> tiers_;
  std::vector<std::unique_ptr<JobRank>> ranks_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace headrace
