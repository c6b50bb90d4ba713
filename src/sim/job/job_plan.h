#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/lanes/lane_policies.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "loader/config/resolved_order.h"
#include "loader/planning/tier_room.h"
#include "plan/placement/placement.h"
#include "sim/job/engine_job.h"
#include "sim/job/job_dataset.h"

namespace headrace {

// What both ways to simulate a job plan it with: a loader's order and placement, in the units of
// the scaled dataset. The job is checked.
//
// Thread safety: thread-compatible.
// Ownership: the arguments of Make() outlive it.
class JobPlan {
 public:
  // Errors: those of RunEngines() but Cancelled
  static Result<JobPlan> Make(const SimulatedJob& job, const EngineJobOptions& options,
                              const JobDataset& data);

  // Of the ranks of a node.
  [[nodiscard]] Result<std::shared_ptr<const ResolvedOrder>> OrderOf(NodeNumber node) const;
  // Of a run from the first step on; `order` is that of a node. There must be tiers.
  [[nodiscard]] PlacementRequest RequestOf(const std::shared_ptr<const ResolvedOrder>& order,
                                           std::function<bool()> keep_going) const;

  [[nodiscard]] const PlacementFactory* placements() const { return placements_; }
  [[nodiscard]] const std::optional<TierRoom>& room() const { return room_; }  // nothing: no tiers
  [[nodiscard]] bool exchanges() const { return exchanges_; }
  [[nodiscard]] const LanePolicyFactory* lane_policies() const { return lane_policies_; }
  [[nodiscard]] std::uint32_t batches_max() const { return batches_max_; }  // that a node has ahead
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  // In which storage at its best gives what the plan reads with the first step of all nodes, whose
  // orders these are: what the pools of an order of blocks begin with. The first steps draw from
  // all of it.
  [[nodiscard]] Result<double> FirstReadSeconds(
      std::span<const std::shared_ptr<const ResolvedOrder>> orders) const;
  // Reads of storage that each node has in flight.
  [[nodiscard]] std::uint32_t reads_in_flight() const;
  // Bytes of the job that each read of storage is charged at least.
  [[nodiscard]] double least_read_bytes() const;

 private:
  JobPlan(const SimulatedJob& job, const EngineJobOptions& options, const JobDataset& data)
      : job_(job), options_(options), data_(data) {}

  Status Settle();
  [[nodiscard]] Result<OrderSpec> MakeSpec() const;
  [[nodiscard]] OrderOptions JobOf(NodeNumber node) const;
  [[nodiscard]] Result<std::uint32_t> BatchesMax(const ResolvedOrder& order) const;
  [[nodiscard]] Result<TierRoom> MakeRoom(const ResolvedOrder& order) const;
  // Whether what the order keeps resident has the place of the first tier.
  [[nodiscard]] bool has_first_tier() const {
    const std::vector<Cluster::Tier>& tiers = job_.cluster.tiers;
    return exchanges_ && !tiers.empty() && !tiers.front().shared;
  }
  // Of a node, for what an order keeps resident and for batches.
  [[nodiscard]] double memory_bytes() const;

  const SimulatedJob& job_;
  const EngineJobOptions& options_;
  const JobDataset& data_;
  OrderSpec spec_;
  bool exchanges_ = false;                        // nodes send each other samples of their blocks
  const PlacementFactory* placements_ = nullptr;  // null: no tiers
  const LanePolicyFactory* lane_policies_ = nullptr;
  std::optional<TierRoom> room_;
  std::uint32_t batches_max_ = 1;
  std::uint64_t steps_per_epoch_ = 0;
};

}  // namespace headrace
