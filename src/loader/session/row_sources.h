#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/loader_stats.h"
#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

class SessionTiers;
class ResolvedOrder;

// Tells where rows come from: by the plan and, for the newest rows, in fact.
//
// Thread safety: every method may be called from any thread.
// Ownership: `schema` and `tiers` are the caller's and outlive it.
class RowSources {
 public:
  // `tiers`: null if there are none.
  RowSources(std::shared_ptr<const Index> index, std::span<const BatchField> schema,
             std::shared_ptr<const ResolvedOrder> order, const SessionTiers* tiers);

  // The consumer of `lane` took a batch. If there are tiers, the newest kStepsRemembered batches
  // are remembered.
  void OnTaken(std::uint32_t lane, const Batch& batch) HEADRACE_LOCKS_EXCLUDED(mutex_);
  static constexpr std::size_t kStepsRemembered = 256;

  // The rows of one lane in a step of the session's own order. Reads nothing. With tiers, plans the
  // run again up to that step.
  //
  // Errors: OutOfRange  the plan has no such step; those of OrderFactory::Make
  [[nodiscard]] Result<std::vector<PlannedRow>> OfStep(Position position, std::uint32_t lane) const;
  // The rows of samples that the caller ordered.
  [[nodiscard]] Result<std::vector<PlannedRow>> OfSamples(std::span<const SampleId> samples) const;

 private:
  struct Taken {
    Position position;
    std::uint32_t lane = 0;
    std::vector<TierNumber> of_rows;
  };

  // What is known of deliveries. Each may be empty: planned from storage; in fact unknown.
  struct Known {
    std::span<const PlannedUse> planned;
    std::span<const TierNumber> actual;
    std::span<const BlockRead> reads;  // that bring them
  };

  // Describes the planned and the actual source of each delivery.
  [[nodiscard]] Result<std::vector<PlannedRow>> Describe(std::span<const Delivery> deliveries,
                                                         const Known& known) const;
  [[nodiscard]] static std::string SourceName(const Delivery& delivery,
                                              std::span<const BlockRead> reads);
  [[nodiscard]] std::string SourceName(TierNumber tier) const;
  [[nodiscard]] std::string SourceName(const PlannedUse& use) const;
  [[nodiscard]] std::vector<TierNumber> ActualOf(Position position, std::uint32_t lane) const
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const Index> index_;
  const std::span<const BatchField> schema_;
  const std::shared_ptr<const ResolvedOrder> order_;
  const SessionTiers* const tiers_;

  mutable Mutex mutex_;
  std::deque<Taken> taken_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
