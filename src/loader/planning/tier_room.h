#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

class Index;
class ResolvedOrder;

// The blocks that tiers keep, and the capacity of each tier in the blocks' units.
struct TierRoom {
  std::shared_ptr<const BlockMap> blocks;
  std::vector<std::uint64_t> capacity_units;  // by tier
};

// Errors: InvalidArgument  no tier or too many; ranks that do not form a node of the job (all nodes
//                          have the same number of ranks); those of ResolvedOrder::CacheBlocks
Result<TierRoom> MakeTierRoom(const std::shared_ptr<const Index>& index, const TiersSpec& spec,
                              const ResolvedOrder& order);

// The request for a placement of a run of the session's own order from `start` on, with empty
// tiers. The job's ranks here are one node; all nodes have the same number of ranks and the same
// tiers. The request shares ownership of `order`.
PlacementRequest MakePlacementRequest(const std::shared_ptr<const ResolvedOrder>& order,
                                      const TierRoom& room, std::uint64_t horizon_epochs,
                                      Position start);

}  // namespace headrace
