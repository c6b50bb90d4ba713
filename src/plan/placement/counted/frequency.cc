#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "plan/placement/counted/counted_planner.h"

namespace headrace::placement {
namespace {

template <typename Policy>
Result<std::unique_ptr<Placement>> MakeCounted(PlacementRequest request) {
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> stream, request.uses());
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<UseStream> ahead, request.uses());
  return std::unique_ptr<Placement>(
      std::make_unique<Policy>(std::move(request), std::move(stream), std::move(ahead)));
}

// `frequency` (NoPFS: Dryden et al., SC'21): every node plans its own tiers.
class FrequencyPlacement final : public CountedPlanner {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    return MakeCounted<FrequencyPlacement>(std::move(request));
  }

  FrequencyPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream,
                     std::unique_ptr<UseStream> ahead)
      : CountedPlanner(std::move(request), std::move(stream), std::move(ahead),
                       {.draws_by_node = true, .stays = false, .by_block = false}) {}
};

// `coordinated`: takes (uses, node, block) from the most uses down, first of nodes that have the
// block, then of the others. A block goes to the first node with room, so that every block has one
// owner before any block has two; then each node fills its remaining room as `frequency` does.
// Equal counts: blocks in the order drawn; for the i-th block the nodes from node i on, cyclically.
// So what the nodes have between them stays, and is not read from storage again.
class CoordinatedPlacement final : public CountedPlanner {
 public:
  static Result<std::unique_ptr<Placement>> Make(PlacementRequest request) {
    return MakeCounted<CoordinatedPlacement>(std::move(request));
  }

  CoordinatedPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream,
                       std::unique_ptr<UseStream> ahead)
      : CountedPlanner(std::move(request), std::move(stream), std::move(ahead),
                       {.draws_by_node = false, .stays = true, .by_block = true}) {}

 private:
  static constexpr std::uint32_t kDone = 0xffff'ffff;

  // A block without an owner, and the highest number of uses by a node that is to be tried yet.
  struct Pending {
    std::uint32_t block;
    std::uint32_t turn;  // the node tried first
    std::uint32_t uses;  // kDone: it has an owner, or every node was tried
  };

  void Assign(std::vector<Share>& shares) override {
    std::vector<bool> owned(block_count());
    for (const bool held : {true, false}) Assign(held, owned, shares);
  }

  // Gives blocks without an owner to nodes that have them; or, not `held`, that do not.
  void Assign(bool held, std::vector<bool>& owned, std::vector<Share>& shares) {
    std::int64_t open = std::ranges::count_if(shares, NotFull);  // nodes with room
    if (open == 0) return;
    std::vector<Pending> pending;
    const Permutation& order = draw().permutation();
    const bool expects = lists() != nullptr;
    for (std::uint32_t i = 0; i < block_count(); ++i) {
      if (expects && i + kAhead < block_count()) {
        ExpectNodes(static_cast<std::uint32_t>(order.At(i + kAhead)));
      }
      if (StoppedAt(i)) return;
      const auto block = static_cast<std::uint32_t>(order.At(i));
      if (owned[block]) continue;
      const std::uint32_t uses = MostUses(block, kDone, held).value_or(kDone);
      if (uses != kDone) pending.push_back({.block = block, .turn = i % nodes(), .uses = uses});
    }
    while (!pending.empty() && open > 0 && !stopped()) {
      std::uint32_t level = 0;
      for (const Pending& each : pending) level = std::max(level, each.uses);
      for (Pending& each : pending) {
        if (each.uses != level || open == 0) continue;
        owned[each.block] = AnyFrom(each.block, each.turn, level, held, [&](std::uint32_t node) {
          const TierNumber has = nodes_[node].Of(each.block);
          if (!shares[node].Add(each.block, sizes().Of(each.block), has)) return false;
          if (!NotFull(shares[node])) --open;
          return true;
        });
        each.uses = owned[each.block] ? kDone : MostUses(each.block, level, held).value_or(kDone);
      }
      std::erase_if(pending, [](const Pending& each) { return each.uses == kDone; });
    }
  }

  static bool NotFull(const Share& share) { return !share.room.Full(); }

  static constexpr std::uint32_t kAhead = 12;  // blocks whose nodes are prefetched
};

}  // namespace

const PlacementFactory& Frequency() {
  static const NodesFactoryOf<FrequencyPlacement> factory("frequency", /*clairvoyant=*/true);
  return factory;
}

const PlacementFactory& Coordinated() {
  static const NodesFactoryOf<CoordinatedPlacement> factory("coordinated", /*clairvoyant=*/true);
  return factory;
}

}  // namespace headrace::placement
