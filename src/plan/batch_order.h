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
  std::uint32_t ranks_per_node = 1;  // rank r is on node r / ranks_per_node
  SampleTable homes;                 // node of each sample; null: none has a home
  SampleTable costs;                 // of each sample; null: all equal
};

// The `batch` order: the global batches are those of `exact`; inside each, samples go first to the
// ranks of their home node, the costliest first where it has more than its share, and the ranks'
// costs are levelled (longest processing time first; Graham 1969). Every rank gets exactly its
// share. Padded from the final batch.
//
// Errors: InvalidArgument  a table of another length than the dataset, a home that is no node,
//                          ranks_per_node that does not divide world_size; those of StepsPerEpoch
//                          and CheckStart
Result<std::unique_ptr<Order>> MakeBatchOrder(const BatchOrderOptions& options, Position start);

}  // namespace headrace
