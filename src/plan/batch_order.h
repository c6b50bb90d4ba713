#pragma once

#include <cstdint>
#include <memory>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/order.h"
#include "plan/order_factory.h"

namespace headrace {

// Parameters of the `batch` order, besides the job.
struct BatchOrderOptions {
  OrderOptions job;
  // Rank r is on node r / ranks_per_node; the last node may have fewer ranks.
  std::uint32_t ranks_per_node = 1;
  // The homes of sample i are the nodes at [i * k, (i + 1) * k) of a table of k numbers a sample, k
  // in [1, kHomesMax]. A number that is not a node of the job, such as kNoNode, is ignored: so a
  // job can continue with the same table on fewer nodes. Null: no sample has a home.
  SampleTable homes;
  SampleTable costs;  // of each sample, in any unit; null: 1 each
};

inline constexpr std::uint64_t kHomesMax = 16;  // of one sample

// The `batch` order. The global batches are those of `exact`. Within each, samples go first to a
// home node, the costliest first if a node has too many; then the ranks' costs are balanced
// (longest processing time first; Graham 1969). Every rank gets exactly its share. Padded from the
// final batch.
//
// A step depends on (options, epoch, step) only, so every rank can plan alone, and any position can
// be entered as in `exact`. Each stream plans the whole global batch: time and memory are O(global
// batch) besides the permutation.
//
// Counters, over the global batches since it was made: samples; at_home, the samples placed on one
// of their home nodes (only with homes); cost_max and cost_mean, sums over steps of the cost of the
// costliest rank and of the mean rank.
//
// Errors: InvalidArgument  a table of the wrong length, homes without a single node of the job, a
//                          global batch above 2^28; those of StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeBatchOrder(const BatchOrderOptions& options, Position start);

}  // namespace headrace
