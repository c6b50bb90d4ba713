#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/batch/batch.h"
#include "engine/tiers/tier_cache.h"
#include "loader/config/tiers_spec.h"
#include "loader/planning/tier_room.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/schedule/scheduled_placement.h"
#include "tier/tier.h"

namespace headrace {

class Index;
class KeptTiers;
class Planner;

// The tiers of a node, which is the job's ranks here: opened once, and kept over the runs of a
// loader. Each node has a folder of its own in each folder, named after its first rank.
//
// Thread safety: every method may be called from any thread; one run at a time.
// Shutdown: whatever uses the tiers ends before the destructor, which waits for their threads, and
// hands those in memory to who keeps them.
class NodeTiers {
 public:
  // Makes the tiers, and takes over what folders hold of a run before with the same dataset, fields
  // and `verified`: whether the run compares what it reads with the index's checksums. What was not
  // compared then would not be later. Tiers in memory are taken over from `kept`, if it is not
  // null.
  //
  // Errors: InvalidArgument     no such placement, no tier or too many, a capacity of 0, a folder
  //                             that cannot be one
  //         FailedPrecondition  somebody else has the folder
  //         ResourceExhausted   no memory; those of SsdTier::Open
  static Result<std::unique_ptr<NodeTiers>> Open(const std::shared_ptr<const Index>& index,
                                                 std::span<const BatchField> schema,
                                                 const TiersSpec& spec,
                                                 std::shared_ptr<const Planner> planner,
                                                 bool verified,
                                                 std::shared_ptr<KeptTiers> kept = nullptr);
  ~NodeTiers();
  NodeTiers(const NodeTiers&) = delete;
  NodeTiers& operator=(const NodeTiers&) = delete;

  // For a run of the planner's own order from `start` on, or of a list.
  //
  // Errors: those of PlacementFactory::Make
  Result<std::unique_ptr<TierCache>> Begin(Position start);
  // For a run of it that is held to a schedule, which begins at `first`: `file` and `verdict` as in
  // ScheduledPlacementOptions. What tiers hold is brought to what the schedule has there.
  //
  // Errors: those of PlacementFactory::Make and MakeScheduledPlacement
  Result<std::unique_ptr<TierCache>> Follow(Position start, Position first, ScheduleFile file,
                                            std::shared_ptr<ScheduleVerdict> verdict);
  Result<std::unique_ptr<TierCache>> Begin(const ListOrderOptions& list);

  // From which tier each use of a step of the planner's own order was, or is to be, by the plan of
  // the newest run; nothing if that run began after it, or was of a list. Plans the run again up to
  // there: of a long one that takes seconds.
  //
  // Errors: those of PlacementFactory::Make
  Result<std::optional<std::vector<PlannedUse>>> Planned(Position position) const;

  [[nodiscard]] std::span<const std::unique_ptr<Tier>> tiers() const { return tiers_; }
  // The folders that are locked until the tiers are destroyed.
  [[nodiscard]] const std::vector<std::string>& folders() const { return folders_; }

 private:
  NodeTiers(const PlacementFactory* factory, std::shared_ptr<const Planner> planner,
            const TiersSpec& spec);
  Status OpenTiers(const TiersSpec& spec, const std::string& fingerprint);
  Result<std::unique_ptr<TierCache>> Begin(PlacementRequest request, Position start);
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> TakeHeld() const;
  std::unique_ptr<TierCache> MakeCache(PlacementRequest request, Position start,
                                       std::unique_ptr<Placement> placement,
                                       std::span<const std::vector<std::uint32_t>> held);

  const PlacementFactory* const factory_;
  const std::shared_ptr<const Planner> planner_;
  const std::uint64_t horizon_epochs_;
  TierRoom room_;
  std::vector<std::unique_ptr<Executor>> executors_;  // of tiers in folders
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::shared_ptr<KeptTiers> kept_;  // null: nobody keeps them
  std::vector<std::string> keys_;    // by tier; empty: in a folder
  std::vector<std::string> folders_;

  mutable Mutex mutex_;
  // Of the newest run; nothing: there was none, or it was of a list.
  std::optional<PlacementRequest> request_ HEADRACE_GUARDED_BY(mutex_);
  Position start_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
