#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/order_options.h"

namespace headrace {

// Parameters of the `epoch` order, besides the job: those of the same names in docs/orders.md.
struct EpochOrderOptions {
  OrderOptions job;  // shuffle must be true
  std::shared_ptr<const BlockMap> blocks;
  std::uint64_t pool_units = 0;       // of all pools of the whole job
  std::uint32_t pools = 1;            // global position g is drawn from pool g mod pools
  std::uint32_t join_permille = 250;  // a block joins this share of a pool's draws after its issue
  std::uint32_t first_fill_permille = 1000;  // of a pool, joined before the run's first draw
  std::uint32_t first_join_permille = 0;  // of a pool's draws, while the rest joins; 0: one a draw
};

// The `epoch` order. Each block is read once an epoch into one of `pools` pools of bounded bytes.
// Each global position draws uniformly, without replacement, from the samples that have joined its
// pool. The next epoch's blocks are issued while this one's are drawn. Padded from the final batch.
// After Redox (redirection) and CorgiPile (block shuffle with a buffer); docs/orders.md lists the
// differences.
//
// An epoch is a function of (options, epoch): entering a position replays the draws of its own
// epoch only.
// Memory: O(blocks + residents of the pools that feed the ranks).
//
// Errors: InvalidArgument  a pool below two of the largest blocks or below its share of one batch,
//                          0 pools or more than there are blocks; those of StepsPerEpoch and
//                          CheckStart
Result<std::unique_ptr<Order>> MakeEpochOrder(const EpochOrderOptions& options, Position start);

}  // namespace headrace
