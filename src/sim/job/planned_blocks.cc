#include "sim/job/planned_blocks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headrace {

Result<std::unique_ptr<PlannedBlocks>> PlannedBlocks::Make(const PlacementFactory& factory,
                                                           PlacementRequest request) {
  const std::uint64_t blocks = request.blocks->block_count();
  const std::size_t nodes = request.capacity_units.size();
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<AllNodes> placement,
                            factory.MakeAllNodes(std::move(request)));
  return std::unique_ptr<PlannedBlocks>(new PlannedBlocks(std::move(placement), blocks, nodes));
}

// Placements that plan all nodes together count what these cover.
PlannedBlocks::PlannedBlocks(std::unique_ptr<AllNodes> placement, std::uint64_t blocks,
                             std::size_t nodes)
    : placement_(std::move(placement)),
      plans_all_(placement_->counters().contains("coverage_units")),
      wanted_(nodes, std::vector<bool>(blocks)),
      held_(wanted_),
      ahead_(nodes),
      holders_(blocks) {}

void PlannedBlocks::Next() {
  HEADRACE_CHECK(placement_->Next(step_));
  for (NodeNumber node = 0; node < nodes(); ++node) {
    for (const CacheOp& op : step_.OpsOf(node)) {
      const bool wanted = op.to != kNoTier;
      if (wanted == wanted_[node][op.block]) continue;
      wanted_[node][op.block] = wanted;
      wanted ? ++holders_[op.block] : --holders_[op.block];
    }
  }
}

// As Placement::Reader(); kNoNode: none, or nobody knows.
NodeNumber PlannedBlocks::ReaderOf(std::uint32_t block) const {
  if (!plans_all_ || holders_[block] == 0) return kNoNode;
  NodeNumber node = block % nodes();
  while (!wanted_[node][block]) node = node + 1 == nodes() ? 0 : node + 1;
  return node;
}

PlannedBlocks::Source PlannedBlocks::TakeUse(NodeNumber node, std::size_t number) {
  const PlannedUse& use = step_.UsesOf(node)[number];
  if (use.tier != kNoTier && held_[node][use.block]) {
    return {.kind = Source::Kind::kTier, .tier = use.tier};
  }
  held_[node][use.block] = wanted_[node][use.block];
  if (use.at_peer && use.tier == kNoTier) return TakeFrom(use.peer, use.peer_tier, use.block);
  const NodeNumber reader = ReaderOf(use.block);
  if (reader == kNoNode || reader == node) return {};
  return TakeFrom(reader, /*tier=*/0, use.block);
}

PlannedBlocks::Source PlannedBlocks::TakeFrom(NodeNumber node, TierNumber tier,
                                              std::uint32_t block) {
  const bool held = held_[node][block];
  held_[node][block] = true;
  return {.kind = Source::Kind::kNode, .tier = tier, .node = node, .reads_first = !held};
}

void PlannedBlocks::EndStep(NodeNumber node, bool ahead) {
  for (const CacheOp& op : step_.OpsOf(node)) {
    if (!wanted_[node][op.block]) held_[node][op.block] = false;
    if (op.ahead && ahead) ahead_[node].push_back(op.block);
  }
}

std::optional<std::uint32_t> PlannedBlocks::TakeAhead(NodeNumber node) {
  std::deque<std::uint32_t>& ahead = ahead_[node];
  while (!ahead.empty()) {
    const std::uint32_t block = ahead.front();
    ahead.pop_front();
    if (!wanted_[node][block] || held_[node][block]) continue;
    held_[node][block] = true;
    const NodeNumber reader = ReaderOf(block);
    if (reader != kNoNode && reader != node && held_[reader][block]) continue;  // It gives it.
    return block;
  }
  return std::nullopt;
}

}  // namespace headrace
