#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// The `exact` order: exactly the sampler's order. Padded from its own beginning.
//
// Step t of epoch e holds positions [t*G, (t+1)*G) of the epoch's permutation, G = batch_size *
// world_size. Position p goes to rank p mod world_size, slot (p mod G) / world_size, as in torch's
// DistributedSampler. Enters any position in O(1) steps, after O(samples) for the epoch's
// permutation, which takes 4 bytes a sample below options.bijection_from samples; from there on it
// takes neither time nor memory.
//
// Errors: those of StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeExactOrder(const OrderOptions& options, Position start);

// An order given as a list.
std::unique_ptr<Order> MakeListOrder(ListOrderOptions options);

// Checks a list for a dataset with this number of samples.
//
// Errors: OutOfRange       an id that the dataset does not have
//         InvalidArgument  batch ends that do not ascend to the number of ids, an epoch of 2^24 up
Status CheckList(const ListOrderOptions& list, std::uint64_t sample_count);

}  // namespace headrace
