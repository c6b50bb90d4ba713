#include "plan/placement/tables/holder_lists.h"

#include <cstdint>
#include <map>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace::placement {
namespace {

struct Copy {
  TierNumber tier = 0;
  bool marked = false;
};
using Model = std::vector<std::map<std::uint32_t, Copy>>;  // by block, then node

void ExpectAsModel(const HolderLists& lists, const Model& model, std::uint32_t nodes) {
  for (std::uint32_t block = 0; block < model.size(); ++block) {
    const auto list = lists.Of(block);
    ASSERT_EQ(list.size(), model[block].size());
    std::size_t i = 0;
    for (const auto& [node, copy] : model[block]) {
      ASSERT_EQ(list[i].node(), node);
      ASSERT_EQ(list[i].tier(), copy.tier);
      ASSERT_EQ(list[i].marked(), copy.marked);
      ASSERT_EQ(HolderLists::Place(list, node), i);
      ++i;
    }
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const auto found = model[block].find(node);
      ASSERT_EQ(lists.Of(block, node), found == model[block].end() ? kNoTier : found->second.tier);
    }
  }
}

TEST(HolderListsTest, ItHasWhatAMapHasAfterEachOfManyChanges) {
  constexpr std::uint32_t kBlocks = 5;
  for (const std::uint32_t nodes : {1U, 3U, 40U}) {
    HolderLists lists(kBlocks);
    Model model(kBlocks);
    Prng dice(nodes, 0, RandomStream::kAugment);
    for (int change = 0; change < 3000; ++change) {
      const auto block = static_cast<std::uint32_t>(dice.Below(kBlocks));
      const auto node = static_cast<std::uint32_t>(dice.Below(nodes));
      const bool fills = change / 500 % 2 == 0;  // Then it empties again.
      const std::uint64_t what = dice.Below(10);
      const auto found = model[block].find(node);
      if (what == 0) {
        const bool mark = dice.Below(2) == 0;
        const bool was = lists.SetMark(block, node, mark);
        ASSERT_EQ(was, found != model[block].end() && found->second.marked);
        if (found != model[block].end()) found->second.marked = mark;
      } else if ((what < 8) == fills) {
        const auto tier = static_cast<TierNumber>(dice.Below(8));
        lists.Set(block, node, tier);
        model[block][node].tier = tier;
      } else {
        lists.Set(block, node, kNoTier);
        model[block].erase(node);
      }
      ExpectAsModel(lists, model, nodes);
      if (HasFatalFailure()) FAIL() << "change " << change << " with " << nodes << " nodes";
    }
  }
}

TEST(HolderListsTest, TheLargestNodeAndTierFit) {
  HolderLists lists(1);
  constexpr auto kLast = static_cast<std::uint32_t>(HolderLists::kNodesMax - 1);
  lists.Set(0, kLast, 7);
  lists.Set(0, 0, 0);
  lists.SetMark(0, kLast, true);
  EXPECT_EQ(lists.Of(0, kLast), 7);
  EXPECT_EQ(lists.Of(0, 0), 0);
  EXPECT_TRUE(lists.Of(0)[1].marked());
}

}  // namespace
}  // namespace headrace::placement
