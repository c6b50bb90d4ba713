// none, lru, pinned, first_touch, frequency and coordinated, against plain models.

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "plan/permutation.h"
#include "plan/placement/testing/slow_model.h"

namespace headrace {
namespace {

class NoneModel final : public SlowModel {
 public:
  using SlowModel::SlowModel;

 private:
  [[nodiscard]] bool knows_peers() const override { return false; }
  void Apply(std::size_t i) override {
    if (i > 0) return;
    for (std::uint32_t node = 0; node < made_.request.held.size(); ++node) {
      for (const auto& tier : made_.request.held[node]) {
        for (const std::uint32_t block : tier) Move(node, block, kNoTier);
      }
    }
  }
};

// A list for each tier, the most recently used block first.
class LruModel final : public SlowModel {
 public:
  explicit LruModel(const Case& made) : SlowModel(made), lists_(made.nodes()) {
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      lists_[node].resize(tiers(node));
      if (node >= made.request.held.size()) continue;
      for (std::size_t tier = 0; tier < tiers(node); ++tier) {
        const auto& held = made.request.held[node][tier];
        lists_[node][tier].assign(held.begin(), held.end());
      }
    }
  }

 private:
  [[nodiscard]] bool knows_peers() const override { return false; }

  void Apply(std::size_t i) override {
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      for (const std::uint32_t block : Uses(i).OfNode(node)) {
        for (auto& list : lists_[node]) list.remove(block);
        std::size_t tier = 0;
        while (tier < tiers(node) && Capacity(node, tier) < made_.units[block]) ++tier;
        if (tier == tiers(node)) continue;
        if (tier_[node][block] != tier && Room(node, tier) < made_.units[block]) {
          Move(node, block, kNoTier);
        }
        Push(node, block, tier);
      }
    }
  }

  void Push(std::uint32_t node, std::uint32_t block, std::size_t tier) {
    while (tier < tiers(node) && Capacity(node, tier) < made_.units[block]) ++tier;
    if (tier == tiers(node)) return Move(node, block, kNoTier);
    while (tier_[node][block] != tier && Room(node, tier) < made_.units[block]) {
      const std::uint32_t oldest = lists_[node][tier].back();
      lists_[node][tier].pop_back();
      Push(node, oldest, tier + 1);
    }
    Move(node, block, static_cast<TierNumber>(tier));
    lists_[node][tier].push_front(block);
  }

  std::vector<std::vector<std::list<std::uint32_t>>> lists_;  // [node][tier]
};

class PinnedModel final : public SlowModel {
 public:
  explicit PinnedModel(const Case& made)
      : SlowModel(made), plan_(made.nodes(), std::vector<TierNumber>(made.units.size(), kNoTier)) {
    std::vector<bool> owned(blocks());
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      for (std::uint32_t block = 0; block < blocks(); ++block) {
        if (!Has(node, block) || owned[block]) continue;
        owned[block] = true;
        plan_[node][block] = tier_[node][block];
      }
    }
    const Permutation order(blocks(), made.request.seed, 0, RandomStream::kPlacement);
    std::uint32_t turn = 0;
    for (std::uint32_t i = 0; i < blocks(); ++i) {
      const auto block = static_cast<std::uint32_t>(order.At(i));
      if (owned[block]) continue;
      for (std::uint32_t k = 0; k < made.nodes(); ++k) {
        const std::uint32_t node = (turn + k) % made.nodes();
        plan_[node][block] = FirstWithRoom(node, block, plan_[node]);
        if (plan_[node][block] == kNoTier) continue;
        turn = (node + 1) % made.nodes();
        break;
      }
    }
  }

 private:
  void Apply(std::size_t i) override {
    if (i == 0) DropDoubled();
    for (const std::uint32_t block : Uses(i).blocks) {
      for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
        if (plan_[node][block] != kNoTier) Move(node, block, plan_[node][block]);
      }
    }
  }

  std::vector<std::vector<TierNumber>> plan_;
};

class FirstTouchModel final : public SlowModel {
 public:
  using SlowModel::SlowModel;

 private:
  void Apply(std::size_t i) override {
    if (i == 0) DropDoubled();
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      for (const std::uint32_t block : Uses(i).OfNode(node)) {
        bool owned = false;
        for (std::uint32_t other = 0; other < made_.nodes(); ++other) owned |= Has(other, block);
        if (!owned) Move(node, block, FirstWithRoom(node, block, tier_[node]));
      }
    }
  }
};

// Shared by frequency and coordinated: uses counted over a period.
class CountedModel : public SlowModel {
 public:
  using SlowModel::SlowModel;

 protected:
  using Plan = std::vector<std::vector<TierNumber>>;  // [node][block]

  virtual void Want(Plan& plan) = 0;

  [[nodiscard]] std::vector<std::uint64_t> Draw(std::uint64_t which) const {
    const Permutation order(blocks(), made_.request.seed, which, RandomStream::kPlacement);
    std::vector<std::uint64_t> rank(blocks());
    for (std::uint32_t i = 0; i < blocks(); ++i) rank[order.At(i)] = i;
    return rank;
  }

  void Fill(std::uint32_t node, const std::vector<std::uint64_t>& rank, Plan& plan, bool stays) {
    std::vector<std::tuple<bool, int, bool, std::uint64_t, std::uint32_t>> sorted;
    for (std::uint32_t block = 0; block < blocks(); ++block) {
      const int uses = uses_[{node, block}];
      if (plan[node][block] != kNoTier || (uses == 0 && !Has(node, block))) continue;
      const bool has = Has(node, block);
      sorted.emplace_back(stays && !has, -uses, !has, rank[block], block);
    }
    std::ranges::sort(sorted);
    for (const auto& each : sorted) Put(node, std::get<4>(each), plan);
    for (std::uint32_t block = 0; block < blocks(); ++block) {
      if (plan[node][block] == kNoTier) continue;
      const TierNumber faster = FirstWithRoom(node, block, plan[node]);
      if (faster < plan[node][block]) plan[node][block] = faster;
    }
  }
  // Where it is, if there is room; returns whether there is room anywhere.
  bool Put(std::uint32_t node, std::uint32_t block, Plan& plan) {
    const TierNumber has = tier_[node][block];
    const bool stays = has != kNoTier && Room(node, has, plan[node]) >= made_.units[block];
    const TierNumber tier = stays ? has : FirstWithRoom(node, block, plan[node]);
    plan[node][block] = tier;
    return tier != kNoTier;
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, int> uses_;  // by (node, block)

 private:
  void Apply(std::size_t i) override {
    const std::uint64_t epoch = Uses(i).at.epoch;
    if (i > 0 && epoch < period_end_) return;
    period_end_ = epoch + (made_.nodes() == 1 ? 1 : made_.request.horizon_epochs);
    uses_.clear();
    std::vector<std::vector<std::uint32_t>> order(made_.nodes());
    for (std::size_t k = i; k < made_.steps->size() && Uses(k).at.epoch < period_end_; ++k) {
      for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
        for (const std::uint32_t block : Uses(k).OfNode(node)) {
          ++uses_[{node, block}];
          order[node].push_back(block);
        }
      }
    }
    Plan plan(made_.nodes(), std::vector<TierNumber>(blocks(), kNoTier));
    Want(plan);
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      for (std::uint32_t block = 0; block < blocks(); ++block) order[node].push_back(block);
      Change(node, plan[node], order[node]);
    }
  }

  void Change(std::uint32_t node, const std::vector<TierNumber>& plan,
              const std::vector<std::uint32_t>& order) {
    for (std::uint32_t block = 0; block < blocks(); ++block) {
      if (plan[block] == kNoTier) Move(node, block, kNoTier);
    }
    const auto first_to = [&](std::size_t tier) -> std::optional<std::uint32_t> {
      for (std::uint32_t block = 0; block < blocks(); ++block) {
        if (Has(node, block) && tier_[node][block] != tier && plan[block] == tier) return block;
      }
      return std::nullopt;
    };
    for (bool again = true; again;) {
      again = false;
      for (std::size_t tier = tiers(node); tier-- > 0;) {
        for (auto block = first_to(tier);
             block.has_value() && Room(node, tier) >= made_.units[*block]; block = first_to(tier)) {
          Move(node, *block, static_cast<TierNumber>(tier));
          again = true;
        }
      }
      for (std::size_t tier = 0; tier < tiers(node) && !again; ++tier) {
        if (const auto block = first_to(tier)) {
          Move(node, *block, kNoTier);
          again = true;
        }
      }
    }
    for (const std::uint32_t block : order) Move(node, block, plan[block]);
  }

  std::uint64_t period_end_ = 0;
};

class FrequencyModel final : public CountedModel {
 public:
  using CountedModel::CountedModel;

 private:
  void Want(Plan& plan) override {
    for (std::uint32_t node = 0; node < made_.nodes(); ++node)
      Fill(node, Draw(node), plan, /*stays=*/false);
  }
};

class CoordinatedModel final : public CountedModel {
 public:
  using CountedModel::CountedModel;

 private:
  void Want(Plan& plan) override {
    const std::vector<std::uint64_t> rank = Draw(0);
    std::vector<std::tuple<bool, int, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>>
        sorted;
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      for (std::uint32_t block = 0; block < blocks(); ++block) {
        const std::uint64_t turn =
            (node + made_.nodes() - rank[block] % made_.nodes()) % made_.nodes();
        sorted.emplace_back(!Has(node, block), -uses_[{node, block}], rank[block], turn, node,
                            block);
      }
    }
    std::ranges::sort(sorted);
    std::vector<bool> owned(blocks());
    for (const auto& each : sorted) {
      const std::uint32_t node = std::get<4>(each);
      const std::uint32_t block = std::get<5>(each);
      if (owned[block]) continue;
      owned[block] = Put(node, block, plan);
    }
    for (std::uint32_t node = 0; node < made_.nodes(); ++node)
      Fill(node, rank, plan, /*stays=*/true);
  }
};

constexpr std::uint64_t kSeeds = 1000;

TEST(PoliciesTest, NoneKeepsNothing) { ExpectAsModel<NoneModel>("none", kSeeds); }
TEST(PoliciesTest, LruIsAPageCache) { ExpectAsModel<LruModel>("lru", kSeeds); }
TEST(PoliciesTest, PinnedHoldsItsShareForGood) { ExpectAsModel<PinnedModel>("pinned", kSeeds); }
TEST(PoliciesTest, FirstTouchOwnsWhileRoomLasts) {
  ExpectAsModel<FirstTouchModel>("first_touch", kSeeds);
}
TEST(PoliciesTest, FrequencySortsEachNodesBlocks) {
  ExpectAsModel<FrequencyModel>("frequency", kSeeds);
}
TEST(PoliciesTest, CoordinatedSortsBlocksAndNodesTogether) {
  ExpectAsModel<CoordinatedModel>("coordinated", kSeeds);
}

// A disk's tier that an earlier run has filled, beside memory, which begins empty.
TEST(PoliciesTest, HeldBlocksStayInTheirTierWhileOthersFillTheFasterOne) {
  for (const char* name : {"coordinated", "frequency", "pinned"}) {
    for (const std::uint32_t held : {4U, 6U}) {  // Of 8 blocks.
      Case made;
      made.units.assign(8, 1);
      made.request.blocks = BlocksOf(made.units);
      made.request.capacity_units = {{2, 6}};
      made.request.held = {{{}, {}}};
      for (std::uint32_t block = 0; block < held; ++block) {
        made.request.held[0][1].push_back(block);
      }
      SetSteps(made, {{.ends_epoch = true, .blocks = {0, 1, 2, 3, 4, 5, 6, 7}, .node_ends = {8}}});
      const auto step = MakePlacement(name, made.Of(0))->Next();
      ASSERT_TRUE(step.has_value());
      EXPECT_EQ(step->ops.size(), 8 - held) << name;
      for (const CacheOp& op : step->ops) EXPECT_EQ(op.from, kNoTier) << name;
    }
  }
}

// The first step's changes where the slower of two tiers holds all blocks, each of which is used.
std::vector<CacheOp> OpsWhereTheSlowerHolds(std::uint32_t blocks, std::uint64_t room,
                                            const char* name) {
  Case made;
  made.units.assign(blocks, 1);
  made.request.blocks = BlocksOf(made.units);
  made.request.capacity_units = {{room, blocks}};
  std::vector<std::uint32_t> all(blocks);
  std::iota(all.begin(), all.end(), 0U);
  made.request.held = {{{}, all}};
  SetSteps(made, {{.ends_epoch = true, .blocks = all, .node_ends = {blocks}}});
  return MakePlacement(name, made.Of(0))->Next().value().ops;
}

TEST(PoliciesTest, HeldBlocksMoveUpIfNothingElseTakesTheRoom) {
  for (const char* name : {"coordinated", "frequency"}) {
    const std::vector<CacheOp> ops = OpsWhereTheSlowerHolds(4, /*room=*/3, name);
    EXPECT_EQ(ops.size(), 3U) << name;
    for (const CacheOp& op : ops) EXPECT_EQ(op.to, 0) << name;
  }
}

// The engine would lose more moves of one step.
TEST(PoliciesTest, HeldBlocksMoveUpFewAtATime) {
  for (const char* name : {"coordinated", "frequency"}) {
    EXPECT_EQ(OpsWhereTheSlowerHolds(400, /*room=*/400, name).size(), 256U) << name;
  }
}

// A period of a large dataset takes minutes to plan.
TEST(PoliciesTest, APeriodIsNoLongerPlannedOnceTheAskerStops) {
  for (const char* name : {"coordinated", "frequency"}) {
    Case made;
    made.units.assign(8, 1);
    made.request.blocks = BlocksOf(made.units);
    made.request.capacity_units = {{2, 4}};
    StepUses uses{.blocks = {0, 1, 2, 3}, .node_ends = {4}};
    SetSteps(made,
             {uses, {.at = {.step = 1}, .ends_epoch = true, .blocks = {4}, .node_ends = {1}}});
    int asked = 0;
    int until = 1000;
    made.request.keep_going = [&asked, &until] { return asked++ < until; };
    EXPECT_FALSE(MakePlacement(name, made.Of(0))->Next()->ops.empty()) << name;
    const int calls = asked;
    EXPECT_GE(calls, 5) << name;  // Each step, each node, and what follows.
    for (until = 0; until < calls; ++until) {
      asked = 0;
      EXPECT_TRUE(MakePlacement(name, made.Of(0))->Next()->ops.empty()) << name << until;
      EXPECT_LE(asked, until + 4) << name;  // No more work.
    }
  }
}

}  // namespace
}  // namespace headrace
