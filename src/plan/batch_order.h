#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/order_options.h"

namespace headrace {

// What fixes the `batch` order beside the job.
struct BatchOrderOptions {
  OrderOptions job;
  // Rank r is on node r / ranks_per_node; the last node may have fewer.
  std::uint32_t ranks_per_node = 1;
  // Sample i's homes are the nodes at [i * k, (i + 1) * k) of a table of k numbers a sample, k in
  // [1, kHomesMax]; a number that is no node of the job, as kNoHome, is none. So a job goes on with
  // the table on fewer nodes. Null: no sample has a home.
  SampleTable homes;
  SampleTable costs;  // of each sample, in any unit; null: 1 each
};

inline constexpr std::uint32_t kNoHome = 0xffff'ffff;
inline constexpr std::uint64_t kHomesMax = 16;  // of a sample

// The `batch` order: the global batches are those of `exact`; inside each, samples go first to a
// home node, the costliest first where there are too many, and the ranks' costs are levelled
// (longest processing time first; Graham 1969). Every rank gets exactly its share. Padded from the
// final batch.
//
// A step depends on (options, epoch, step) alone, so that every rank plans alone, and a position is
// entered as in `exact`. Each stream plans the whole global batch: time and memory are O(global
// batch) beside the permutation.
//
// Counters, of the global batches since it was made: samples; at_home, of them, on a node that is a
// home of theirs (with homes); cost_max and cost_mean, sums over steps of the cost of the rank
// with the most, and of a rank on average.
//
// Errors: InvalidArgument  a table of another length than the dataset wants, homes of which none is
//                          a node, a global batch above 2^28; those of StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeBatchOrder(const BatchOrderOptions& options, Position start);

}  // namespace headrace
