#include "plan/placement/reuse/next_uses.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace::placement {
namespace {

constexpr std::uint64_t kNone = NextUses::kNone;

// Two nodes and one use of each in every epoch's only step: use 2e of node 0, use 2e + 1 of node 1.
class NextUsesTest : public ::testing::Test {
 protected:
  static NextUses Make(const std::vector<std::pair<std::uint32_t, std::uint32_t>>& epochs,
                       UseWindow& window) {
    Steps steps;
    for (const auto& [first, second] : epochs) {
      steps.push_back({.at = {.epoch = steps.size(), .step = 0},
                       .blocks = {first, second},
                       .node_ends = {1, 2}});
    }
    return NextUses(std::make_unique<FixedUses>(std::make_shared<const Steps>(std::move(steps))),
                    window);
  }

  UseWindow window_{3, std::nullopt, /*firsts=*/true};
};

TEST_F(NextUsesTest, ANodesUseCountsUpToTheFirstStepOfTheEpochAfterNext) {
  NextUses next = Make({{0, 1}, {1, 2}, {0, 2}, {1, 0}}, window_);
  const UseReader::Step* const step = next.Enter(16);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->end, 2U);
  EXPECT_EQ(next.OwnAfter(0, 0), 4U);
  EXPECT_EQ(next.OwnNext(0, 1), 2U);
  EXPECT_EQ(next.OwnAfter(1, 1), kNone);  // Block 1 comes to node 1 never again.
  EXPECT_EQ(next.OwnNext(1, 0), kNone);   // In epoch 3: not soon.
  EXPECT_EQ(next.soon_end(), 6U);
  EXPECT_EQ(window_.end(), 6U);  // It did not read further.
}

TEST_F(NextUsesTest, AnyUseCountsUpToTheHorizon) {
  NextUses next = Make({{0, 1}, {2, 2}, {2, 2}, {0, 1}, {2, 1}}, window_);
  ASSERT_NE(next.Enter(4), nullptr);
  EXPECT_EQ(next.AnyAfter(0), 6U);
  EXPECT_EQ(next.AnyAfter(1), 7U);
  EXPECT_EQ(next.AnyAfter(7), kNone);  // Epoch 4 is at the horizon.
  EXPECT_EQ(window_.end(), 8U);
}

TEST_F(NextUsesTest, StepsReadTooEarlyAreSoonOnceTheRunComesNearer) {
  NextUses next = Make({{0, 1}, {2, 2}, {2, 2}, {0, 1}}, window_);
  ASSERT_NE(next.Enter(16), nullptr);
  EXPECT_EQ(next.AnyAfter(0), 6U);
  EXPECT_EQ(next.OwnAfter(0, 0), kNone);
  window_.Pass();
  window_.Pass();
  next.PassStep();
  ASSERT_NE(next.Enter(16), nullptr);
  EXPECT_EQ(next.soon_end(), 8U);
  EXPECT_EQ(next.OwnNext(0, 0), 6U);
  EXPECT_EQ(next.OwnNext(1, 0), kNone);
}

TEST_F(NextUsesTest, ThereIsNoStepAfterTheLast) {
  NextUses next = Make({{0, 1}}, window_);
  ASSERT_NE(next.Enter(16), nullptr);
  EXPECT_FALSE(next.ReadSoon());
  window_.Pass();
  window_.Pass();
  next.PassStep();
  EXPECT_EQ(next.Enter(16), nullptr);
}

}  // namespace
}  // namespace headrace::placement
