#pragma once

#include <optional>

#include "plan/order_factory.h"

namespace headrace {

// How often mates of a block meet in a batch of the `epoch` order: OrderFactory::ExpectedSharing().
//
// Over whole epochs of n samples: a sample stays in a pool of M joined samples for a time that is
// exponential with mean M, so two mates are d positions apart with density exp(-d / M) / (2 M). M
// samples join at the start of an epoch, and M are left when the last block has joined: over the
// epoch this adds (1 + exp(-2 (n - M) / M)) / (4 n). Positions of different pools are never mates.
// With homes each of them has a share of the batch's positions and its own pools, and this holds
// for each.
std::optional<BatchSharing> EpochBatchSharing(const OrderRequest& resolved);

}  // namespace headrace
