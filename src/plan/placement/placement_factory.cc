#include <string>
#include <unordered_set>

#include "base/check.h"
#include "plan/placement/placement.h"
#include "plan/placement/tiers.h"

namespace headrace {
namespace placement {
namespace {

Status Wrong(std::string_view policy, const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "placement " + std::string(policy) + ": " + what);
}

std::string TierName(std::size_t node, std::size_t tier) {
  return "tier " + std::to_string(tier) + " of node " + std::to_string(node);
}

// Checks the blocks that one node holds at the start.
Status CheckHeld(const PlacementRequest& request, std::size_t node, const BlockSizes& sizes,
                 std::string_view policy) {
  const auto& held = request.held[node];
  const std::vector<std::uint64_t>& capacity = request.capacity_units[node];
  if (held.size() > capacity.size()) {
    return Wrong(policy, "blocks are held in " + TierName(node, held.size() - 1) + ", which has " +
                             std::to_string(capacity.size()) + " tiers");
  }
  std::unordered_set<std::uint32_t> seen;
  for (std::size_t tier = 0; tier < held.size(); ++tier) {
    std::uint64_t units = 0;
    for (const std::uint32_t block : held[tier]) {
      if (block >= sizes.count()) {
        return Wrong(policy, TierName(node, tier) + " holds block " + std::to_string(block) +
                                 ", the dataset has " + std::to_string(sizes.count()) +
                                 "; it was filled from another dataset or with other blocks");
      }
      if (!seen.insert(block).second) {
        return Wrong(policy, TierName(node, tier) + " holds block " + std::to_string(block) +
                                 ", which the node holds already");
      }
      units += sizes.Of(block);
    }
    if (units > capacity[tier]) {
      return Wrong(policy, TierName(node, tier) + " holds " + std::to_string(units) +
                               " units, its capacity is " + std::to_string(capacity[tier]) +
                               "; drop blocks before planning");
    }
  }
  return Status();
}

}  // namespace

Status CheckRequest(const PlacementRequest& request, std::string_view policy) {
  HEADRACE_CHECK(request.blocks != nullptr && request.uses != nullptr);
  const std::size_t nodes = request.capacity_units.size();
  if (request.node >= nodes) {
    return Wrong(policy, "got node " + std::to_string(request.node) + ", must be below " +
                             std::to_string(nodes) + ", the number of nodes with capacities");
  }
  if (request.blocks->block_count() > 0xffff'fffe) {
    return Wrong(policy, "got " + std::to_string(request.blocks->block_count()) +
                             " blocks, must be below 2^32 - 1; use larger blocks");
  }
  if (request.horizon_epochs == 0) return Wrong(policy, "horizon of 0 epochs, must be at least 1");
  for (std::size_t node = 0; node < nodes; ++node) {
    const std::size_t tiers = request.capacity_units[node].size();
    if (tiers <= kTiersMax) continue;
    return Wrong(policy, "node " + std::to_string(node) + " has " + std::to_string(tiers) +
                             " tiers, must be at most " + std::to_string(kTiersMax));
  }
  if (request.held.empty()) return Status();
  if (request.held.size() > nodes) {
    return Wrong(policy, "blocks are held on " + std::to_string(request.held.size()) +
                             " nodes, there are " + std::to_string(nodes));
  }
  const BlockSizes sizes(*request.blocks);
  for (std::size_t node = 0; node < request.held.size(); ++node) {
    HEADRACE_RETURN_IF_ERROR(CheckHeld(request, node, sizes, policy));
  }
  return Status();
}

}  // namespace placement

const Registry<PlacementFactory>& Placements() {
  static const Registry<PlacementFactory> placements(
      "placement", {&placement::Coordinated(), &placement::Frequency(), &placement::Pinned(),
                    &placement::FirstTouch(), &placement::Reuse(), &placement::Belady(),
                    &placement::Lru(), &placement::None()});
  return placements;
}

}  // namespace headrace
