#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "loader/config/tiers_spec.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

class Index;
class Planner;

// The units that tiers count in; what they keep as one, in these; and what each has room for.
struct TierRoom {
  std::shared_ptr<const BlockMap> blocks;
  std::vector<std::uint64_t> capacity_units;  // by tier
};

// Errors: InvalidArgument  no tier or too many; ranks that are no node of the job, whose nodes all
//                          have equally many; those of Planner::CacheBlocks
Result<TierRoom> MakeTierRoom(const std::shared_ptr<const Index>& index, const TiersSpec& spec,
                              const Planner& planner);

// What a placement is made from, for a run of the planner's own order from `start` on, with nothing
// held. The job's ranks here are a node; all nodes have as many, and the same tiers. Keeps the
// planner.
PlacementRequest MakePlacementRequest(const std::shared_ptr<const Planner>& planner,
                                      const TierRoom& room, std::uint64_t horizon_epochs,
                                      Position start);

}  // namespace headrace
