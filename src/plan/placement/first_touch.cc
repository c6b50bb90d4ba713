#include "plan/placement/nodes_planner.h"

namespace headrace::placement {
namespace {

// `first_touch`: the first node that uses a block and has room owns it permanently, and no other
// node keeps a copy (the dynamic data store of LBANN: Jacobs et al., CLUSTER'19).
class FirstTouchPlacement final : public SteppedPlanner {
 public:
  FirstTouchPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : SteppedPlanner(std::move(request), std::move(stream)), owned_(block_count(), false) {
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      ForHeld(each, [&](std::uint32_t block, TierNumber /*tier*/) {
        if (!owned_[block]) {
          owned_[block] = true;
        } else {
          doubled_.emplace_back(each, block);
        }
      });
    }
  }

  void Advance() override {
    for (const auto& [each, block] : doubled_) nodes_[each].Move(block, kNoTier);
    doubled_.clear();
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      NodeTiers& tiers = nodes_[each];
      if (tiers.Full()) continue;
      for (const std::uint32_t block : uses().OfNode(each)) {
        if (owned_[block]) continue;
        const TierNumber tier = tiers.WithRoom(block);
        if (tier == kNoTier) continue;
        tiers.Move(block, tier);
        owned_[block] = true;
      }
    }
  }

 private:
  std::vector<bool> owned_;                                       // blocks that a node has
  std::vector<std::pair<std::uint32_t, std::uint32_t>> doubled_;  // held, and by an earlier node
};

}  // namespace

const PlacementFactory& FirstTouch() {
  static const NodesFactoryOf<FirstTouchPlacement> factory("first_touch", /*clairvoyant=*/false);
  return factory;
}

}  // namespace headrace::placement
