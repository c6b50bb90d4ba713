#include "plan/placement/tiers.h"

namespace headrace::placement {
namespace {

// `first_touch`: the first node that uses a block and has room owns it permanently, and no other
// node keeps a copy (the dynamic data store of LBANN: Jacobs et al., CLUSTER'19).
class FirstTouchPlacement final : public NodesPlanner {
 public:
  FirstTouchPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : NodesPlanner(std::move(request)), stream_(std::move(stream)), owned_(block_count(), false) {
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

  std::optional<PlacedStep> Next() override {
    if (!stream_->Next(uses_)) return std::nullopt;
    PlacedStep step = Begin(uses_.at, OwnUses(uses_));
    for (const auto& [each, block] : doubled_) nodes_[each].Move(block, kNoTier);
    doubled_.clear();
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      NodeTiers& tiers = nodes_[each];
      if (tiers.Full()) continue;
      for (const std::uint32_t block : uses_.OfNode(each)) {
        if (owned_[block]) continue;
        const TierNumber tier = tiers.WithRoom(block);
        if (tier == kNoTier) continue;
        tiers.Move(block, tier);
        owned_[block] = true;
      }
    }
    Finish(step, nodes_[node()]);
    return step;
  }

 private:
  const std::unique_ptr<UseStream> stream_;
  std::vector<bool> owned_;                                       // blocks that a node has
  std::vector<std::pair<std::uint32_t, std::uint32_t>> doubled_;  // held, and by an earlier node
  StepUses uses_;
};

}  // namespace

const PlacementFactory& FirstTouch() {
  static const FactoryOf<FirstTouchPlacement> factory("first_touch", /*clairvoyant=*/false);
  return factory;
}

}  // namespace headrace::placement
