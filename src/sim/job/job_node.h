#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
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

// What the nodes of a simulated job share.
struct JobWorld {
  SimLoop& loop;
  const PublishedJob& job;
  const JobDataset& data;
  SharedRate& storage;  // its users are the nodes
  SharedRate& link;     // its users are the nodes that get
  std::span<const BatchField> schema;
};

// The plan of a node, and the memory that it takes.
struct NodePlan {
  std::shared_ptr<const ResolvedOrder> order;
  std::optional<TierRoom> room;  // nothing: no tiers
  std::unique_ptr<Placement> placement;
  std::uint32_t batches_max = 1;
};

// A node of a simulated job: its engine, and the rank that takes its batches.
//
// Thread safety: none; a simulation is one thread.
// Shutdown: Stop(), then the loop runs until it is idle, then Close().
class JobNode final : public BatchSink {
 public:
  JobNode(const JobWorld& world, NodeNumber number, NodePlan plan, TimedNodes::Take take);
  ~JobNode() override;

  // Errors: those of making the order
  Status Start();
  // Calls `taken` from the loop once the rank has its next batch, or the run has ended.
  void Take(std::function<void(std::shared_ptr<Batch>)> taken);
  // HeldSamples::Take().
  void Give(SampleId sample, std::uint64_t deadline, TakenEntry done);
  void Stop() { engine_->Stop(); }
  void Close();

  [[nodiscard]] const std::optional<Status>& ended() const { return ended_; }
  [[nodiscard]] EngineStats stats() const { return engine_->stats(); }
  [[nodiscard]] std::uint64_t storage_bytes() const { return store_.stats().bytes; }

  void OnBatch(std::shared_ptr<Batch> batch) override;
  void OnEnd(Status status) override;

 private:
  void MakeTiers();
  [[nodiscard]] std::uint32_t Readers() const;
  [[nodiscard]] EngineParts Parts();
  [[nodiscard]] EngineOptions Options() const;
  void Answer();

  const JobWorld world_;
  const NodeNumber number_;
  NodePlan plan_;
  TimedStore store_;
  TimedNodes nodes_;
  SimExecutor executor_;
  std::vector<std::unique_ptr<SharedRate>> tier_rates_;  // outlive the tiers
  std::vector<std::unique_ptr<TimedTier>> tiers_;
  std::unique_ptr<Engine> engine_;
  std::deque<std::shared_ptr<Batch>> ready_;
  std::optional<Status> ended_;
  std::function<void(std::shared_ptr<Batch>)> taken_;  // empty: the rank does not wait
};

}  // namespace headrace
