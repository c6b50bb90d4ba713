#include "node/server/shared_takes.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

std::shared_ptr<const Batch> Step(std::uint64_t step) {
  auto batch = std::make_shared<Batch>();
  batch->step = step;
  return batch;
}

TEST(SharedTakesTest, ABatchIsTakenWhenAllRanksHaveTakenIt) {
  SharedTakes takes;
  const auto batch = Step(0);
  EXPECT_TRUE(takes.Took(2, batch, {2, 3}).empty());
  EXPECT_TRUE(takes.waits());
  EXPECT_EQ(takes.Took(3, batch, {2, 3}), SharedTakes::Batches{batch});
  EXPECT_FALSE(takes.waits());
}

TEST(SharedTakesTest, OneRankIsALaneOfItsOwn) {
  SharedTakes takes;
  const auto batch = Step(5);
  EXPECT_EQ(takes.Took(1, batch, {1}), SharedTakes::Batches{batch});
}

TEST(SharedTakesTest, WhatARankThatLeftHadNotTakenIsTakenInOrder) {
  SharedTakes takes;
  const auto first = Step(0);
  const auto second = Step(1);
  EXPECT_TRUE(takes.Took(0, first, {0, 1}).empty());
  EXPECT_TRUE(takes.Took(0, second, {0, 1}).empty());
  EXPECT_EQ(takes.Left({0}), (SharedTakes::Batches{first, second}));
  EXPECT_FALSE(takes.waits());
}

TEST(SharedTakesTest, WhatARankTookThatHasLeftMeanwhileIsUpToTheOthers) {
  SharedTakes takes;
  const auto batch = Step(0);
  EXPECT_EQ(takes.Took(1, batch, {1}), SharedTakes::Batches{batch});
  EXPECT_TRUE(takes.Took(0, batch, {1}).empty());  // It comes late.
  EXPECT_FALSE(takes.waits());
  EXPECT_TRUE(takes.Took(0, batch, {}).empty());
  EXPECT_FALSE(takes.waits());
}

TEST(SharedTakesTest, WhatOnlyARankThatLeftHadTakenIsStillToBeTaken) {
  SharedTakes takes;
  const auto batch = Step(0);
  EXPECT_TRUE(takes.Took(0, batch, {0, 1}).empty());
  EXPECT_TRUE(takes.Left({1}).empty());
  EXPECT_EQ(takes.Took(1, batch, {1}), SharedTakes::Batches{batch});
}

}  // namespace
}  // namespace headrace
