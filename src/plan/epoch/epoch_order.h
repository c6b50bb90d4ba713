#pragma once

#include <memory>

#include "headrace/status.h"
#include "plan/epoch/epoch_options.h"
#include "plan/order.h"

namespace headrace {

// The `epoch` order. Each block is read once an epoch into one of `pools` pools of bounded bytes.
// Each global position draws uniformly, without replacement, from the samples that have joined its
// pool. The next epoch's blocks are issued while this one's are drawn. Padded from the final batch.
// After Redox (redirection) and CorgiPile (block shuffle with a buffer); docs/orders.md lists the
// differences.
//
// With homes each pool has blocks of one home: see plan/epoch/epoch_homes_order.h.
//
// An epoch is a function of (options, epoch): entering a position replays the draws of its own
// epoch only.
// Memory: O(blocks + residents of the pools that feed the ranks).
//
// Errors: InvalidArgument  a pool below two of the largest blocks or below its share of one batch,
//                          0 pools or more than there are blocks at a home, or not a multiple of
//                          the homes; an exchange between other nodes than the homes; those of
//                          StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeEpochOrder(const EpochOrderOptions& options, Position start);

}  // namespace headrace
