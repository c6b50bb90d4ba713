#include <fmt/core.h>

#include <string>
#include <unordered_set>

#include "base/check.h"
#include "base/format/errors.h"
#include "plan/placement/placement.h"
#include "plan/placement/tiers.h"

namespace headrace {
namespace placement {
namespace {

std::string TierName(std::size_t node, std::size_t tier) {
  return fmt::format("tier {} of node {}", tier, node);
}

// Checks the blocks that one node holds at the start.
Status CheckHeld(const PlacementRequest& request, std::size_t node, const BlockSizes& sizes,
                 std::string_view policy) {
  const auto& held = request.held[node];
  const std::vector<std::uint64_t>& capacity = request.capacity_units[node];
  if (held.size() > capacity.size()) {
    return InvalidArgument("placement {}: blocks are held in {}, but there are {} tiers", policy,
                           TierName(node, held.size() - 1), capacity.size());
  }
  std::unordered_set<std::uint32_t> seen;
  for (std::size_t tier = 0; tier < held.size(); ++tier) {
    std::uint64_t units = 0;
    for (const std::uint32_t block : held[tier]) {
      if (block >= sizes.count()) {
        return InvalidArgument(
            "placement {}: {} holds block {}, the dataset has {}; it was filled from another "
            "dataset or with other blocks",
            policy, TierName(node, tier), block, sizes.count());
      }
      if (!seen.insert(block).second) {
        return InvalidArgument(
            "placement {}: {} holds block {}, which the node holds already; hold it once", policy,
            TierName(node, tier), block);
      }
      units += sizes.Of(block);
    }
    if (units > capacity[tier]) {
      return InvalidArgument(
          "placement {}: {} holds {} units, its capacity is {}; drop blocks before planning",
          policy, TierName(node, tier), units, capacity[tier]);
    }
  }
  return Status();
}

}  // namespace

Status CheckRequest(const PlacementRequest& request, std::string_view policy) {
  HEADRACE_CHECK(request.blocks != nullptr && request.uses != nullptr);
  const std::size_t nodes = request.capacity_units.size();
  if (request.node >= nodes) {
    return InvalidArgument(
        "placement {}: got node {}, must be below {}, the number of nodes with capacities", policy,
        request.node, nodes);
  }
  if (request.blocks->block_count() > 0xffff'fffe) {
    return InvalidArgument("placement {}: got {} blocks, must be below 2^32 - 1; use larger blocks",
                           policy, request.blocks->block_count());
  }
  if (request.horizon_epochs == 0) {
    return InvalidArgument("placement {}: horizon of 0 epochs, must be at least 1", policy);
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    const std::size_t tiers = request.capacity_units[node].size();
    if (tiers <= kTiersMax) continue;
    return InvalidArgument("placement {}: node {} has {} tiers, must be at most {}", policy, node,
                           tiers, kTiersMax);
  }
  if (request.held.empty()) return Status();
  if (request.held.size() > nodes) {
    return InvalidArgument(
        "placement {}: got held blocks of {} nodes, must be at most {}, those with capacities",
        policy, request.held.size(), nodes);
  }
  const BlockSizes sizes(*request.blocks);
  for (std::size_t node = 0; node < request.held.size(); ++node) {
    HEADRACE_RETURN_IF_ERROR(CheckHeld(request, node, sizes, policy));
  }
  return Status();
}

}  // namespace placement

Registry<PlacementFactory>& Placements() {
  static Registry<PlacementFactory> placements(
      "placement", {&placement::Coordinated(), &placement::Frequency(), &placement::Pinned(),
                    &placement::FirstTouch(), &placement::Reuse(), &placement::Belady(),
                    &placement::Lru(), &placement::None()});
  return placements;
}

}  // namespace headrace
