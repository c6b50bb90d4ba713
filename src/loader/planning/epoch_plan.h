#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "loader/config/job.h"
#include "loader/planning/tier_room.h"
#include "plan/order.h"
#include "plan/placement/placement.h"
#include "plan/quality/labels.h"

namespace headrace {

// Reads by their size: samples, or, where the order reads blocks, the pieces that a block is read
// in.
using ReadCounts = std::map<std::uint64_t, std::uint64_t>;

// What the epoch of the job's ranks here is planned to read from where. Bytes are those of samples,
// as stored.
struct PlannedEpoch {
  struct TierPlan {
    ReadCounts reads;
    ReadCounts writes;  // inserts, and moves from another tier
  };

  std::uint64_t epoch = 0;
  std::uint64_t samples = 0;       // delivered
  std::uint64_t sample_bytes = 0;  // of these
  ReadCounts storage;
  std::vector<TierPlan> tiers;  // fastest first
  std::uint64_t at_peers = 0;   // of what is read from storage: blocks that a tier of another
                                // node has
};

// Plans a loader's job epoch by epoch, and reads nothing.
//
// Thread safety: none.
class EpochPlanner {
 public:
  // Errors: those of SettleJob, and of making its order and placement
  static Result<std::unique_ptr<EpochPlanner>> Make(std::shared_ptr<const Index> index,
                                                    LoaderOptions options);

  // The next epoch; nothing after the last of the job.
  std::optional<PlannedEpoch> Next();

  [[nodiscard]] const Job& job() const { return job_; }

  // What the job's order is expected to do to the labels of a batch, as a Loader expects it.
  //
  // Errors: those of Planner::Inflation
  [[nodiscard]] Result<std::optional<ExpectedInflation>> Inflation() const;

 private:
  EpochPlanner(std::shared_ptr<const Index> index, Job job)
      : index_(std::move(index)), job_(std::move(job)) {}
  Status Begin();
  void AddStep(const Step& step, PlannedEpoch& epoch);
  void AddUse(const PlannedUse* use, std::uint64_t bytes, PlannedEpoch& epoch);
  void AddOps(const PlacedStep& placed, PlannedEpoch& epoch);
  [[nodiscard]] std::uint64_t BytesOf(SampleId first, std::uint32_t count) const;

  const std::shared_ptr<const Index> index_;
  const Job job_;
  TierRoom room_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Placement> placement_;  // null: no tiers
  std::optional<Step> next_;
  std::unordered_set<std::uint32_t> awaited_;  // blocks that tiers are to have, and no read brought
};

}  // namespace headrace
