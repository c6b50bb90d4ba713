#include <algorithm>

#include "plan/permutation.h"
#include "plan/placement/nodes_planner.h"

namespace headrace::placement {
namespace {

// `pinned`: each node holds a share of a random subset permanently (MinIO and CoorDL: Mohan et al.,
// VLDB'21). The owners are drawn once: held blocks stay, the others are assigned to the nodes in
// the order of a permutation. A block is inserted when any node uses it for the first time.
class PinnedPlacement final : public SteppedPlanner {
 public:
  PinnedPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : SteppedPlanner(std::move(request), std::move(stream)), owner_(block_count(), kNobody) {
    Deal();
  }

  void Advance() override {
    for (const auto& [each, block] : doubled_) nodes_[each].Move(block, kNoTier);
    doubled_.clear();
    if (missing_ > 0) {
      for (const std::uint32_t block : uses().blocks) Pin(block);
    }
  }

 private:
  static constexpr std::uint32_t kNobody = 0xffff'ffff;

  void Pin(std::uint32_t block) {
    const std::uint32_t owner = owner_[block];
    if (owner == kNobody || nodes_[owner].Has(block)) return;
    nodes_[owner].Move(block, tier_[block]);
    --missing_;
  }

  // Fixes the owner of every pinned block, and its tier.
  void Deal() {
    std::vector<TierRoom> plan;
    for (std::uint32_t each = 0; each < nodes(); ++each) {
      plan.emplace_back(shared_sizes(), request().capacity_units[each]);
      ForHeld(each, [&](std::uint32_t block, TierNumber tier) {
        if (owner_[block] == kNobody) {
          owner_[block] = each;
          plan[each].Take(tier, sizes().Of(block));
        } else {
          doubled_.emplace_back(each, block);
        }
      });
    }
    tier_.assign(block_count(), kNoTier);
    const Permutation order(block_count(), request().seed, 0, RandomStream::kPlacement);
    std::uint32_t turn = 0;  // the node that gets the next block
    std::uint64_t largest = LargestRoom(plan);
    for (std::uint32_t i = 0; i < block_count() && largest >= sizes().least(); ++i) {
      const auto block = static_cast<std::uint32_t>(order.At(i));
      if (owner_[block] != kNobody || sizes().Of(block) > largest) continue;
      for (std::uint32_t tried = 0; tried < nodes() && owner_[block] == kNobody; ++tried) {
        const TierNumber tier = plan[turn].WithRoom(block);
        if (tier != kNoTier) {
          plan[turn].Take(tier, sizes().Of(block));
          owner_[block] = turn;
          tier_[block] = tier;
          ++missing_;
        }
        turn = (turn + 1) % nodes();
      }
      if (owner_[block] == kNobody) largest = LargestRoom(plan);
    }
  }

  static std::uint64_t LargestRoom(const std::vector<TierRoom>& plan) {
    std::uint64_t largest = 0;
    for (const TierRoom& tiers : plan) {
      for (TierNumber tier = 0; tier < tiers.count(); ++tier) {
        largest = std::max(largest, tiers.Free(tier));
      }
    }
    return largest;
  }

  std::vector<std::uint32_t> owner_;  // of each block; kNobody: not pinned
  std::vector<TierNumber> tier_;      // of each block that its owner still has to insert
  std::vector<std::pair<std::uint32_t, std::uint32_t>> doubled_;  // held, and by an earlier node
  std::uint64_t missing_ = 0;  // pinned blocks that their owner does not have yet
};

}  // namespace

const PlacementFactory& Pinned() {
  static const NodesFactoryOf<PinnedPlacement> factory("pinned", /*clairvoyant=*/false);
  return factory;
}

}  // namespace headrace::placement
