#include "plan/placement/readers/storage_readers.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

// Which tier of which node has which block, as the plans of all nodes say.
class AllTiers {
 public:
  explicit AllTiers(const Case& made) : tier_(made.nodes()) {
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      tier_[node].assign(made.units.size(), kNoTier);
      if (node >= made.request.held.size()) continue;
      for (std::size_t tier = 0; tier < made.request.held[node].size(); ++tier) {
        for (const std::uint32_t block : made.request.held[node][tier]) {
          tier_[node][block] = static_cast<TierNumber>(tier);
        }
      }
    }
  }
  void Apply(std::uint32_t node, const std::vector<CacheOp>& ops) {
    for (const CacheOp& op : ops) tier_[node][op.block] = op.to;
  }
  [[nodiscard]] TierNumber Of(std::uint32_t node, std::uint32_t block) const {
    return tier_[node][block];
  }
  // Of the nodes that have it the one that reads it for all.
  [[nodiscard]] std::optional<std::uint32_t> Reader(std::uint32_t block) const {
    const auto nodes = static_cast<std::uint32_t>(tier_.size());
    for (std::uint32_t i = 0; i < nodes; ++i) {
      const std::uint32_t node = (block + i) % nodes;
      if (tier_[node][block] != kNoTier) return node;
    }
    return std::nullopt;
  }

 private:
  std::vector<std::vector<TierNumber>> tier_;  // [node][block]
};

std::unique_ptr<Placement> MakePlain(const PlacementFactory& factory, PlacementRequest request) {
  return factory.Make(std::move(request)).value();
}

class EveryPlacementTest : public testing::TestWithParam<const PlacementFactory*> {
 protected:
  [[nodiscard]] bool PlansOneNode() const {
    const std::string_view name = GetParam()->name();
    return name == "none" || name == "lru" || name == "belady";
  }
};

// The nodes that read storage in a step, from the tiers before it and after it.
std::set<std::uint32_t> Readers(const StepUses& uses, const AllTiers& before, const AllTiers& after,
                                bool asks, bool plans_one) {
  std::set<std::uint32_t> readers;
  for (std::uint32_t node = 0; node < uses.node_ends.size(); ++node) {
    for (const std::uint32_t block : uses.OfNode(node)) {
      if (plans_one || (!asks && before.Of(node, block) == kNoTier)) {
        readers.insert(node);
      } else if (asks && !before.Reader(block).has_value()) {
        readers.insert(after.Reader(block).value_or(node));
      }
    }
  }
  return readers;
}

TEST_P(EveryPlacementTest, CountsTheNodesThatReadStorageAndChangesNoPlan) {
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    for (const bool asks : {true, false}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (asks ? " asks" : ""));
      const Case made = RandomCase(seed);
      std::vector<std::unique_ptr<Placement>> plain;
      std::vector<std::unique_ptr<Placement>> counted;
      for (std::uint32_t node = 0; node < made.nodes(); ++node) {
        const PlacementRequest request = made.Of(node);
        plain.push_back(MakePlain(*GetParam(), request));
        counted.push_back(
            MakeCountedPlacement(MakePlain(*GetParam(), request), request, asks).value());
      }
      AllTiers tiers(made);
      for (const StepUses& uses : *made.steps) {
        const AllTiers before = tiers;
        std::vector<std::uint32_t> counts;
        for (std::uint32_t node = 0; node < made.nodes(); ++node) {
          const std::optional<PlacedStep> expected = plain[node]->Next();
          const std::optional<PlacedStep> step = counted[node]->Next();
          ASSERT_TRUE(expected.has_value() && step.has_value());
          ASSERT_EQ(step->uses, expected->uses);
          ASSERT_EQ(step->ops, expected->ops);
          tiers.Apply(node, step->ops);
          counts.push_back(counted[node]->StorageReaders().value());
        }
        const std::size_t readers = Readers(uses, before, tiers, asks, PlansOneNode()).size();
        for (const std::uint32_t count : counts) ASSERT_EQ(count, readers);
        seen.insert(readers);
      }
      for (const auto& each : counted) ASSERT_FALSE(each->Next().has_value());
    }
  }
  EXPECT_GT(seen.size(), 1U) << "steps differ";
}

TEST_P(EveryPlacementTest, NamesTheFastestOtherNodeIfAskedAndChangesNothingElse) {
  std::uint64_t faster = 0;  // than the next node by number
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case made = RandomCase(seed);
    std::vector<std::unique_ptr<Placement>> plain;
    std::vector<std::unique_ptr<Placement>> fastest;
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      PlacementRequest request = made.Of(node);
      plain.push_back(MakePlain(*GetParam(), request));
      request.fastest_peer = true;
      fastest.push_back(MakePlain(*GetParam(), std::move(request)));
    }
    AllTiers tiers(made);
    for (std::size_t number = 0; number < made.steps->size(); ++number) {
      AllTiers after = tiers;
      for (std::uint32_t node = 0; node < made.nodes(); ++node) {
        const std::optional<PlacedStep> expected = plain[node]->Next();
        const std::optional<PlacedStep> step = fastest[node]->Next();
        ASSERT_EQ(step->ops, expected->ops);
        after.Apply(node, step->ops);
        ASSERT_EQ(step->uses.size(), expected->uses.size());
        for (std::size_t i = 0; i < step->uses.size(); ++i) {
          const PlannedUse& use = step->uses[i];
          ASSERT_EQ(use.tier, expected->uses[i].tier);
          if (PlansOneNode()) {
            ASSERT_FALSE(use.at_peer);
            continue;
          }
          TierNumber least = kNoTier;
          for (std::uint32_t other = 0; other < made.nodes(); ++other) {
            if (other != node) least = std::min(least, tiers.Of(other, use.block));
          }
          ASSERT_EQ(use.at_peer, least != kNoTier);
          if (!use.at_peer) continue;
          ASSERT_NE(use.peer, node);
          ASSERT_EQ(use.peer_tier, least);
          ASSERT_EQ(tiers.Of(use.peer, use.block), least);
          faster += expected->uses[i].at_peer && expected->uses[i].peer != use.peer;
        }
        ASSERT_EQ(fastest[node]->counters(), plain[node]->counters());
      }
      tiers = after;
    }
  }
  const std::string_view name = GetParam()->name();
  if (name == "frequency" || name == "reuse") {
    EXPECT_GT(faster, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, EveryPlacementTest, testing::ValuesIn(Placements().rows()),
                         [](const auto& each) { return std::string(each.param->name()); });

}  // namespace
}  // namespace headrace
