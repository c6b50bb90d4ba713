#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_homes.h"
#include "plan/epoch/epoch_pool.h"
#include "plan/order.h"

namespace headrace {

inline constexpr std::uint32_t kEpochJoinPermilleMax = 900;
inline constexpr std::int64_t kEpochPoolBytesMax = std::int64_t{1} << 56;
inline constexpr std::uint32_t kPermille = 1000;

// Parameters of the `epoch` order, besides the job: those of the same names in docs/orders.md.
struct EpochOrderOptions {
  OrderOptions job;  // shuffle must be true
  std::shared_ptr<const BlockMap> blocks;
  std::uint64_t pool_units = 0;       // of all pools of the whole job
  std::uint32_t pools = 1;            // a multiple of the number of homes
  std::uint32_t join_permille = 250;  // a block joins this share of a pool's draws after its issue
  std::uint32_t first_fill_permille = 1000;  // of a pool, joined before the run's first draw
  std::uint32_t first_join_permille = 0;  // of a pool's draws, while the rest joins; 0: one a draw
  std::shared_ptr<const EpochHomes> homes;  // null: one home

  [[nodiscard]] std::uint32_t home_count() const { return homes == nullptr ? 1 : homes->count(); }
};

// Checks the job and the blocks, before the parameters.
//
// Errors: InvalidArgument  an order that does not shuffle, no blocks or those of another dataset;
//                          those of StepsPerEpoch
Status CheckEpochInputs(const OrderOptions& job, const BlockMap* blocks);

// Checks the parameters.
//
// Errors: InvalidArgument  those of MakeEpochOrder, besides those of CheckEpochInputs and
// CheckStart
Status CheckEpochPools(const EpochOrderOptions& options);

// Samples that an epoch delivers, without padding.
std::uint64_t DeliveredInEpoch(const OrderOptions& job, std::uint64_t steps_per_epoch);

// The pools of one home, which gives `delivered` samples an epoch.
EpochPoolPlan::Options EpochPoolOptions(const EpochOrderOptions& options, std::uint32_t home,
                                        std::uint64_t delivered);

// Counts what a stream reads, for Order::counters().
//
// Thread safety: none.
class EpochReadCounts {
 public:
  void Add(const BlockRead& read);
  // Pieces that joined early while a position was entered.
  void AddReplayed(std::uint64_t early_joins) { early_joins_replayed_ += early_joins; }
  // `early_joins`: of the stream's pools since they were made.
  [[nodiscard]] std::map<std::string, double> counters(std::uint64_t early_joins,
                                                       std::uint64_t resident_peak) const;

 private:
  std::uint64_t blocks_ = 0;
  std::uint64_t samples_ = 0;
  std::uint64_t blocks_again_ = 0;
  std::uint64_t samples_again_ = 0;
  std::uint64_t early_joins_replayed_ = 0;
};

// Steps after whose issue a read is due: within its own epoch it would have joined by then.
//
// Thread safety: none.
class DueReads {
 public:
  // A read joins `positions` global positions after its issue.
  DueReads(std::uint64_t positions, const OrderOptions& job);

  // Step::reads_due of the next step, up to which `reads` were issued.
  std::uint64_t Next(std::uint64_t reads);

 private:
  const std::uint64_t steps_;
  std::deque<std::uint64_t> issued_by_step_;  // number of reads issued up to each of the last steps
};

}  // namespace headrace
