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
#include "engine/tiers/tier_cache.h"
#include "headrace/batch.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "loader/planning/schedules.h"
#include "loader/planning/tier_room.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/placement/readers/ask_policy.h"
#include "tier/tier.h"

namespace headrace {

class Index;
class OtherNodes;
class RetainedTiers;
class ResolvedOrder;

// Those that the tiers of a session share samples with.
struct TierSharing {
  std::shared_ptr<RetainedTiers> retained;  // keeps tiers in memory before and after; null: none
  OtherNodes* nodes = nullptr;              // null: other nodes are taken to have empty tiers
  bool by_model = false;                    // whether sources are chosen by a model
};

// The tiers of a node: the job's ranks in this process. They are opened once and kept over the runs
// of a loader. Each node has its own folder, named after its first rank, inside each tier folder.
//
// Thread safety: every method may be called from any thread. At most one run exists at a time.
// Shutdown: users of the tiers must end before the destructor, which waits for the tiers' threads
// and passes tiers in memory to `retained`.
class SessionTiers {
 public:
  // Makes the tiers. Reuses the contents of folders from an earlier run with the same dataset,
  // fields and `verified`. `verified`: whether the run compares samples with the index's checksums;
  // a sample stored without comparison would never be compared.
  //
  // Errors: InvalidArgument     unknown placement or ask policy, no tier or too many, a capacity of
  //                             0, an invalid folder
  //         FailedPrecondition  the folder is in use
  //         ResourceExhausted   no memory; those of SsdTier::Open
  static Result<std::unique_ptr<SessionTiers>> Open(const std::shared_ptr<const Index>& index,
                                                    std::span<const BatchField> schema,
                                                    const TiersSpec& spec,
                                                    std::shared_ptr<const ResolvedOrder> order,
                                                    bool verified, TierSharing sharing);
  ~SessionTiers();
  SessionTiers(const SessionTiers&) = delete;
  SessionTiers& operator=(const SessionTiers&) = delete;

  // Returns the cache for a run of the session's own order from `start` on, or of a list. If there
  // are other nodes, agrees with them first: that may wait for them.
  //
  // Errors: those of PlacementFactory::Make and OtherNodes::Agree
  Result<std::unique_ptr<TierCache>> Begin(Position start);
  // The same for a run that follows a schedule, which begins at `first`. The first step brings the
  // tiers' contents to those of the schedule.
  //
  // Errors: those of PlacementFactory::Make and ScheduledRun::place
  Result<std::unique_ptr<TierCache>> Follow(Position start, Position first,
                                            const ScheduledRun::Place& place);
  Result<std::unique_ptr<TierCache>> Begin(const ListOrderOptions& list);

  // The planned source of each use of a step of the session's own order, by the plan of the newest
  // run. std::nullopt if that run began after the step, or followed a list. Plans the run again up
  // to that step, which takes seconds in a long run.
  //
  // Errors: those of PlacementFactory::Make
  Result<std::optional<std::vector<PlannedUse>>> Planned(Position position) const;

  [[nodiscard]] std::span<const std::unique_ptr<Tier>> tiers() const { return tiers_; }
  // Whether nodes guess what others have, and no node reads storage for another.
  [[nodiscard]] bool guesses() const { return ask_policy_->guesses(); }
  // The folders that are locked until the tiers are destroyed.
  [[nodiscard]] const std::vector<std::string>& folders() const { return folders_; }

 private:
  SessionTiers(const PlacementFactory* factory, const AskPolicy* policy,
               std::shared_ptr<const ResolvedOrder> order, std::uint64_t horizon_epochs,
               const TierSharing& sharing);
  Status OpenTiers(const TiersSpec& spec, const std::string& fingerprint);
  Result<std::unique_ptr<TierCache>> Begin(PlacementRequest request, Position start);
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> TakeHeld() const;
  Status AddOthers(PlacementRequest& request, Position start) const;
  std::unique_ptr<TierCache> MakeCache(PlacementRequest request, Position start,
                                       std::unique_ptr<Placement> placement,
                                       std::span<const std::vector<std::uint32_t>> held);

  const PlacementFactory* const factory_;
  const std::shared_ptr<const ResolvedOrder> order_;
  const std::uint64_t horizon_epochs_;
  const AskPolicy* const ask_policy_;
  OtherNodes* const nodes_;
  const bool by_model_;
  TierRoom room_;
  std::vector<std::unique_ptr<Executor>> executors_;  // of tiers in folders
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::shared_ptr<RetainedTiers> retained_;  // null: tiers in memory end with this object
  std::vector<std::string> keys_;            // by tier; empty: in a folder
  std::vector<std::string> folders_;

  mutable Mutex mutex_;
  // Of the newest run. std::nullopt: there was none, or it followed a list.
  std::optional<PlacementRequest> request_ HEADRACE_GUARDED_BY(mutex_);
  Position start_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
