#pragma once

#include <cstdint>
#include <memory>

#include "headrace/status.h"
#include "plan/epoch/epoch_options.h"
#include "plan/order.h"

namespace headrace {

// The `epoch` order where each pool has blocks of one home: pool p those of home p mod homes. The
// positions of an epoch belong to homes in turn, in proportion to their samples (HomeTurns); each
// step's positions are dealt to the rows of all ranks by a permutation of their own. So every rank
// gets samples of every home, and global batches depend on neither ranks nor nodes.
//
// Every stream draws from the pools of all homes. With an exchange (OrderOptions::exchange) it
// reads its own home only and sends and expects parcels; otherwise it reads all.
//
// Memory: O(blocks + residents of all pools + a global batch).
//
// `options` have passed CheckEpochPools(), and `start` CheckStart().
std::unique_ptr<Order> MakeEpochHomesOrder(const EpochOrderOptions& options,
                                           std::uint64_t steps_per_epoch, Position start);

// The pools that such a stream reads.
std::uint64_t EpochHomesOrderPools(const EpochOrderOptions& options);

// The most units that such a stream holds besides its pools: samples to send, and one parcel that
// it was sent.
std::uint64_t EpochHomesOrderParcels(const EpochOrderOptions& options);

}  // namespace headrace
