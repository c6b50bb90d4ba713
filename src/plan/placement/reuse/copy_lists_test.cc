#include "plan/placement/reuse/copy_lists.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Uses 0 to 7 are of blocks 0 to 7, of one unit each; block 7 has five.
class CopyListsTest : public ::testing::Test {
 protected:
  CopyListsTest() {
    const std::vector<std::uint32_t> blocks = {0, 1, 2, 3, 4, 5, 6, 7};
    window_.Append(blocks, 0, fresh_);
  }

  // The uses of the victims that FindLater() names.
  std::vector<std::uint64_t> Later(Copy copy, std::uint64_t units) {
    std::vector<Victim> victims;
    found_ = lists_.FindLater(0, 0, copy, units, victims);
    std::vector<std::uint64_t> uses;
    for (const Victim& victim : victims) {
      EXPECT_EQ(victim.block, victim.copy.need);
      uses.push_back(victim.copy.need);
    }
    return uses;
  }

  const std::shared_ptr<const BlockSizes> sizes_ =
      std::make_shared<const BlockSizes>(*BlocksOf({1, 1, 1, 1, 1, 1, 1, 5}));
  std::vector<std::uint64_t> fresh_;
  UseWindow window_{8, std::nullopt, /*firsts=*/true};
  std::vector<NodeTiers> nodes_ = NodeTiers::MakeAll(sizes_, {{9, 9}, {9, 9}}, 0);
  CopyLists lists_{window_, *sizes_, nodes_};
  bool found_ = false;
};

TEST_F(CopyListsTest, TheFarthestMakeRoomFirst) {
  for (const std::uint64_t use : {2U, 5U, 3U}) lists_.Add(0, 0, {.need = use});
  EXPECT_THAT(Later({.need = 2}, 1), ElementsAre(5));
  EXPECT_THAT(Later({.need = 2}, 2), ElementsAre(5, 3));
  EXPECT_TRUE(found_);
  EXPECT_THAT(Later({.need = 2}, 3), ElementsAre(5, 3));  // Use 2 is not later.
  EXPECT_FALSE(found_);
  lists_.Remove(0, 0, {.need = 5});
  EXPECT_THAT(Later({.need = 2}, 1), ElementsAre(3));
}

TEST_F(CopyListsTest, ALastCopyGoesOnlyForALastOneAndAfterSpareOnes) {
  lists_.Add(0, 0, {.need = 6, .last = true});
  lists_.Add(0, 0, {.need = 4});
  EXPECT_THAT(Later({.need = 1}, 2), ElementsAre(4));
  EXPECT_FALSE(found_);
  EXPECT_THAT(Later({.need = 1, .last = true}, 2), ElementsAre(4, 6));
  EXPECT_TRUE(found_);
}

TEST_F(CopyListsTest, UnitsCountAndEachTierOfEachNodeHasItsOwn) {
  lists_.Add(0, 0, {.need = 7});
  lists_.Add(0, 1, {.need = 3});
  lists_.Add(1, 0, {.need = 2});
  EXPECT_THAT(Later({.need = 0}, 5), ElementsAre(7));
  EXPECT_TRUE(found_);
  EXPECT_THAT(Later({.need = 0}, 6), ElementsAre(7));
  EXPECT_FALSE(found_);
}

TEST_F(CopyListsTest, ItGrowsWithTheWindow) {
  lists_.Add(0, 0, {.need = 4});
  for (int i = 0; i < 3; ++i) window_.Pass();
  window_.Append(std::vector<std::uint32_t>(100, 1), 0, fresh_);
  const std::uint64_t far = window_.end() - 1;
  EXPECT_THAT(Later({.need = 3}, 1), ElementsAre(4));
  lists_.Add(0, 0, {.need = far});
  std::vector<Victim> victims;
  EXPECT_TRUE(lists_.FindLater(0, 0, {.need = 3}, 2, victims));
  ASSERT_EQ(victims.size(), 2U);
  EXPECT_EQ(victims[0].copy.need, far);
  EXPECT_EQ(victims[0].block, 1U);
  EXPECT_EQ(victims[1].copy.need, 4U);
  EXPECT_THAT(Later({.need = far}, 1), IsEmpty());
}

}  // namespace
}  // namespace headrace::placement
