// belady and reuse, against models that look through all steps for every decision.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/slow_model.h"

namespace headrace {
namespace {

constexpr std::size_t kFar = ~std::size_t{0};

bool Before(Position a, Position b) {
  return std::pair(a.epoch, a.step) < std::pair(b.epoch, b.step);
}

struct Use {
  std::size_t step = 0;
  std::uint32_t node = 0;
  std::uint32_t block = 0;
};

// All uses of a run, one after the other.
std::vector<Use> AllUses(const Case& made) {
  std::vector<Use> all;
  for (std::size_t i = 0; i < made.steps->size(); ++i) {
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      for (const std::uint32_t block : (*made.steps)[i].OfNode(node)) {
        all.push_back({.step = i, .node = node, .block = block});
      }
    }
  }
  return all;
}

class LookaheadModel : public SlowModel {
 public:
  explicit LookaheadModel(const Case& made) : SlowModel(made), all_(AllUses(made)) {}

 protected:
  void EnterStep(std::size_t i) {
    at_ = Uses(i).at;
    horizon_ = {.epoch = at_.epoch + made_.request.horizon_epochs, .step = at_.step};
  }
  // The first use from `from` on that is seen before `limit`.
  [[nodiscard]] std::size_t First(std::uint32_t block, std::optional<std::uint32_t> node,
                                  std::size_t from, Position limit) const {
    for (std::size_t i = from; i < all_.size(); ++i) {
      if (!Before(Uses(all_[i].step).at, limit)) return kFar;
      if (all_[i].block == block && (!node.has_value() || *node == all_[i].node)) return i;
    }
    return kFar;
  }
  [[nodiscard]] bool EndSeen() const { return Before(made_.steps->back().at, horizon_); }

  const std::vector<Use> all_;
  Position at_;
  Position horizon_;
  std::size_t now_ = 0;  // the first use to come
};

class BeladyModel final : public LookaheadModel {
 public:
  using LookaheadModel::LookaheadModel;

 private:
  [[nodiscard]] bool knows_peers() const override { return false; }

  void Apply(std::size_t i) override {
    EnterStep(i);
    for (; now_ < all_.size() && all_[now_].step == i;) {
      const Use use = all_[now_++];
      const std::size_t next = First(use.block, use.node, now_, horizon_);
      if (next == kFar && EndSeen()) continue;
      Offer(use.node, use.block, next, 0);
    }
  }

  void Offer(std::uint32_t node, std::uint32_t block, std::size_t next, std::size_t first) {
    const TierNumber from = tier_[node][block];
    for (std::size_t tier = first; tier < tiers(node) && !(next == kFar && EndSeen()); ++tier) {
      if (tier == from) return;
      std::vector<std::pair<std::size_t, std::uint32_t>> later;
      for (std::uint32_t other = 0; other < blocks(); ++other) {
        if (tier_[node][other] != tier || next == kFar) continue;
        const std::size_t of_other = First(other, node, now_, horizon_);
        if (of_other > next) later.emplace_back(of_other, other);
      }
      std::ranges::sort(later, std::greater<>());
      std::uint64_t room = Room(node, tier);
      std::size_t count = 0;
      while (count < later.size() && room < made_.units[block]) {
        room += made_.units[later[count++].second];
      }
      if (room < made_.units[block]) continue;
      if (count > 0 && from > tier) Move(node, block, kNoTier);
      for (std::size_t k = 0; k < count; ++k) {
        Offer(node, later[k].second, later[k].first, tier + 1);
      }
      Move(node, block, static_cast<TierNumber>(tier));
      return;
    }
    Move(node, block, kNoTier);
  }
};

class ReuseModel final : public LookaheadModel {
 public:
  using LookaheadModel::LookaheadModel;

 private:
  struct Need {
    std::size_t use = kFar;
    bool last = false;
  };

  [[nodiscard]] bool Active() const {
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      for (std::size_t tier = 0; tier < tiers(node); ++tier) {
        if (Capacity(node, tier) > 0) return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::uint32_t Copies(std::uint32_t block) const {
    std::uint32_t copies = 0;
    for (const auto& node : tier_) copies += node[block] != kNoTier ? 1 : 0;
    return copies;
  }
  // At most 2I - h steps away, in steps of the run if all epochs are whole: up to step 0 of the
  // epoch after next.
  [[nodiscard]] std::size_t Own(std::uint32_t node, std::uint32_t block) const {
    const Position soon{.epoch = at_.epoch + 2, .step = 1};
    return First(block, node, now_, Before(soon, horizon_) ? soon : horizon_);
  }
  [[nodiscard]] std::size_t Any(std::uint32_t block) const {
    return First(block, std::nullopt, now_, horizon_);
  }
  // The use that a copy of the node is, or would be, kept for.
  [[nodiscard]] Need Needed(std::uint32_t node, std::uint32_t block) const {
    const bool last = Copies(block) == (Has(node, block) ? 1 : 0);
    return {.use = last ? Any(block) : Own(node, block), .last = last};
  }

  void Apply(std::size_t i) override {
    EnterStep(i);
    if (!Active()) return;
    if (i == 0) {
      ForHeld([&](std::uint32_t node, std::uint32_t block) {
        if (Needed(node, block).use == kFar) Move(node, block, kNoTier);
      });
    }
    while (now_ < all_.size() && all_[now_].step == i) {
      const Use use = all_[now_++];
      // The only copy, elsewhere: is it still needed?
      for (std::uint32_t other = 0; other < made_.nodes(); ++other) {
        if (other != use.node && Has(other, use.block) && Needed(other, use.block).use == kFar) {
          Move(other, use.block, kNoTier);
        }
      }
      const Need need = Needed(use.node, use.block);
      if (need.use != kFar) {
        Offer(use.node, use.block, need, 0);
      } else {
        Move(use.node, use.block, kNoTier);
      }
    }
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) LoadAhead(node);
  }

  template <typename Visit>
  void ForHeld(const Visit& visit) {
    for (std::uint32_t node = 0; node < made_.request.held.size(); ++node) {
      for (const auto& tier : made_.request.held[node]) {
        for (const std::uint32_t block : tier) visit(node, block);
      }
    }
  }

  // Copies in a tier in the order in which they make room.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, Need>> Later(std::uint32_t node,
                                                                  std::size_t tier,
                                                                  Need need) const {
    std::vector<std::pair<std::uint32_t, Need>> later;
    for (std::uint32_t other = 0; other < blocks(); ++other) {
      if (tier_[node][other] != tier) continue;
      const Need of_other = Needed(node, other);
      if (of_other.use <= need.use || (of_other.last && !need.last)) continue;
      later.emplace_back(other, of_other);
    }
    std::ranges::sort(later, [](const auto& a, const auto& b) {
      return std::pair(!a.second.last, a.second.use) > std::pair(!b.second.last, b.second.use);
    });
    return later;
  }

  void Offer(std::uint32_t node, std::uint32_t block, Need need, std::size_t first) {
    const TierNumber from = tier_[node][block];
    for (std::size_t tier = first; tier < tiers(node); ++tier) {
      if (tier == from) return;
      if (Capacity(node, tier) < made_.units[block]) continue;
      const auto later = Later(node, tier, need);
      std::uint64_t room = Room(node, tier);
      std::size_t count = 0;
      while (count < later.size() && room < made_.units[block]) {
        room += made_.units[later[count++].first];
      }
      if (room < made_.units[block]) continue;
      if (count > 0 && from > tier) Move(node, block, kNoTier);
      for (std::size_t k = 0; k < count; ++k) {
        Offer(node, later[k].first, later[k].second, tier + 1);
      }
      Move(node, block, static_cast<TierNumber>(tier));
      if (from == kNoTier) DropUnneeded(node, block);
      return;
    }
    Move(node, block, kNoTier);
  }

  // A copy arrived: the former last copy is evicted if its own node does not need it.
  void DropUnneeded(std::uint32_t node, std::uint32_t block) {
    for (std::uint32_t other = 0; other < made_.nodes(); ++other) {
      if (other == node || !Has(other, block) || Needed(other, block).use != kFar) continue;
      Move(other, block, kNoTier);
    }
  }

  void LoadAhead(std::uint32_t node) {
    for (std::size_t i = now_; i < all_.size(); ++i) {
      const std::uint32_t block = all_[i].block;
      if (all_[i].node != node || Has(node, block) || Own(node, block) != i) continue;
      const TierNumber tier = FirstWithRoom(node, block, tier_[node]);
      if (tier != kNoTier) {
        Move(node, block, tier);
        DropUnneeded(node, block);
      } else if (FirstWithRoom(node, block, std::vector<TierNumber>(blocks(), kNoTier)) !=
                 kNoTier) {
        return;
      }
    }
  }
};

TEST(BeladyTest, EveryNodesEveryStepIsTheModels) { ExpectAsModel<BeladyModel>("belady", 1500); }

TEST(ReuseTest, EveryNodesEveryStepIsTheModels) { ExpectAsModel<ReuseModel>("reuse", 1000); }

}  // namespace
}  // namespace headrace
