#include "engine/tiers/tier_cache.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "tier/ram_tier.h"

namespace headrace {
namespace {

// One step that uses all blocks of the other nodes. Which nodes have which blocks never changes.
class FixedPlacement final : public Placement {
 public:
  FixedPlacement(std::vector<PlannedUse> uses,
                 std::map<std::uint32_t, std::set<NodeNumber>> holders)
      : uses_(std::move(uses)), holders_(std::move(holders)) {}

  std::optional<PlacedStep> Next() override {
    return PlacedStep{.at = {.epoch = 0, .step = step_++}, .uses = uses_, .ops = {}};
  }
  [[nodiscard]] std::optional<BlockHolder> Holder(std::uint32_t block,
                                                  std::uint32_t from) const override {
    const auto found = holders_.find(block);
    if (found == holders_.end()) return std::nullopt;
    const auto holder = found->second.lower_bound(from);
    if (holder == found->second.end()) return std::nullopt;
    return BlockHolder{.node = *holder, .tier = static_cast<TierNumber>(*holder)};
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  const std::vector<PlannedUse> uses_;
  const std::map<std::uint32_t, std::set<NodeNumber>> holders_;
  std::uint64_t step_ = 0;
};

TEST(TierCacheTest, TheSecondHolderIsTheNextAfterTheFirstAndNeverThisNode) {
  const auto tier = RamTier::Make(8192, 1024).value();
  constexpr NodeNumber kThis = 2;
  const auto at_node = [](std::uint32_t block, NodeNumber node) {
    return PlannedUse{.block = block, .peer = node, .at_peer = true};
  };
  TierCache cache(
      {tier.get()}, MakeUniformBlocks(8, 1),
      std::make_unique<FixedPlacement>(
          std::vector<PlannedUse>{at_node(0, 3),
                                  at_node(1, 3),
                                  at_node(2, 1),
                                  at_node(3, 4),
                                  {.block = 4},
                                  {.block = 5}},
          std::map<std::uint32_t, std::set<NodeNumber>>{
              {0, {3}}, {1, {0, 3}}, {2, {1, 2, 4}}, {3, {2, 4}}, {4, {0, 1}}, {5, {2}}}),
      std::span<const std::vector<std::uint32_t>>(), kThis);
  cache.PlanStep();
  const auto holders = [&](std::uint64_t sample) {
    return cache.HoldersOf(SampleId{sample}).nodes;
  };
  EXPECT_EQ(holders(0), (Holders{3, std::nullopt}));
  EXPECT_EQ(holders(1), (Holders{3, 0})) << "after the last node comes the first";
  EXPECT_EQ(holders(2), (Holders{1, 4})) << "not this node";
  EXPECT_EQ(holders(3), (Holders{4, std::nullopt}));
  EXPECT_EQ(holders(4), (Holders{0, 1})) << "used from storage; node 0 reads it for all";
  EXPECT_EQ(holders(5), std::nullopt) << "this node reads it for all";
  EXPECT_EQ(holders(6), std::nullopt) << "not used";
}

}  // namespace
}  // namespace headrace
