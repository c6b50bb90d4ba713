#include "plan/placement/step_sums.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

struct Planned {
  std::vector<StepSums> sums;
  std::vector<PlacedStep> steps;
};

Planned Plan(const PlacementFactory& factory, PlacementRequest request) {
  Planned planned;
  auto made = MakeSummedPlacement(factory, std::move(request),
                                  [&](const StepSums& sums) { planned.sums.push_back(sums); });
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  if (!made.ok()) return planned;
  while (std::optional<PlacedStep> step = made.value()->Next()) {
    planned.steps.push_back(*std::move(step));
  }
  return planned;
}

// The first step from which on two nodes have different numbers in a field, and the fields that
// differ in that step: "3: ids users"; "same".
std::string FirstDifference(const std::vector<StepSums>& one, const std::vector<StepSums>& other) {
  if (one.size() != other.size()) return "sizes";
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (one[i] == other[i]) continue;
    std::string fields = std::to_string(i) + ":";
    if (one[i].ids != other[i].ids) fields += " ids";
    if (one[i].users != other[i].users) fields += " users";
    if (one[i].owners != other[i].owners) fields += " owners";
    return fields;
  }
  return "same";
}

class EveryStepSumsTest : public testing::TestWithParam<const PlacementFactory*> {};

TEST_P(EveryStepSumsTest, AreTheSameOnAllNodesAndChangeNoPlan) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case made = RandomCase(seed);
    const Planned first = Plan(*GetParam(), made.Of(0));
    ASSERT_EQ(first.sums.size(), made.steps->size());
    for (std::size_t i = 0; i < first.sums.size(); ++i) {
      ASSERT_EQ(first.sums[i].at, (*made.steps)[i].at);
      ASSERT_EQ(first.sums[i].ends_epoch, (*made.steps)[i].ends_epoch);
    }
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      const Planned planned = Plan(*GetParam(), made.Of(node));
      ASSERT_EQ(FirstDifference(first.sums, planned.sums), "same") << "node " << node;
      const auto plain = MakePlacement(GetParam()->name(), made.Of(node));
      for (const PlacedStep& step : planned.steps) {
        const std::optional<PlacedStep> expected = plain->Next();
        ASSERT_TRUE(expected.has_value());
        ASSERT_EQ(step.uses, expected->uses);
        ASSERT_EQ(step.ops, expected->ops);
      }
      ASSERT_FALSE(plain->Next().has_value());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, EveryStepSumsTest, testing::ValuesIn(Placements().rows()),
                         [](const auto& each) { return std::string(each.param->name()); });

// Two nodes, 12 steps of an epoch with 2 blocks for each node.
Case TwoNodes() {
  Case made;
  made.units.assign(48, 1);
  made.request.blocks = BlocksOf(made.units);
  made.request.capacity_units = {{20}, {20}};
  Steps steps;
  for (std::uint64_t step = 0; step < 12; ++step) {
    StepUses uses{.at = {.epoch = 0, .step = step}, .ends_epoch = step == 11};
    for (std::uint32_t i = 0; i < 4; ++i) {
      uses.blocks.push_back(static_cast<std::uint32_t>(4 * step + i));
    }
    uses.node_ends = {2, 4};
    steps.push_back(std::move(uses));
  }
  SetSteps(made, std::move(steps));
  return made;
}

// The same with one step changed.
template <typename Change>
Case Changed(std::size_t step, const Change& change) {
  Case made = TwoNodes();
  Steps steps = *made.steps;
  change(steps[step]);
  SetSteps(made, std::move(steps));
  return made;
}

std::vector<StepSums> FirstTouchSums(const Case& made, std::uint32_t node = 0) {
  return Plan(*Placements().Find("first_touch"), made.Of(node)).sums;
}

TEST(StepSumsTest, AnotherSampleChangesTheIdsFromItsStepOn) {
  const Case made = Changed(5, [](StepUses& uses) { uses.blocks[3] = 0; });
  EXPECT_EQ(FirstDifference(FirstTouchSums(TwoNodes()), FirstTouchSums(made)),
            "5: ids users owners");
  EXPECT_NE(FirstTouchSums(TwoNodes()).back().ids, FirstTouchSums(made).back().ids);
}

TEST(StepSumsTest, ASampleAtAnotherNodeChangesTheHomesAndNotTheIds) {
  const Case made = Changed(5, [](StepUses& uses) { std::swap(uses.blocks[0], uses.blocks[2]); });
  EXPECT_EQ(FirstDifference(FirstTouchSums(TwoNodes()), FirstTouchSums(made)), "5: users owners");
  EXPECT_EQ(FirstTouchSums(TwoNodes()).back().ids, FirstTouchSums(made).back().ids);
}

TEST(StepSumsTest, AnotherOrderWithinANodeChangesTheHomes) {
  const Case made = Changed(5, [](StepUses& uses) { std::swap(uses.blocks[0], uses.blocks[1]); });
  EXPECT_EQ(FirstDifference(FirstTouchSums(TwoNodes()), FirstTouchSums(made)), "5: users");
}

TEST(StepSumsTest, AnotherSplitOfTheSameOrderChangesTheHomes) {
  const Case made = Changed(5, [](StepUses& uses) { uses.node_ends = {1, 4}; });
  EXPECT_EQ(FirstDifference(FirstTouchSums(TwoNodes()), FirstTouchSums(made)), "5: users owners");
}

TEST(StepSumsTest, WhatANodeIsThoughtToHoldChangesTheOwnersOnly) {
  Case made = TwoNodes();
  made.request.held = {{{}}, {{40}}};
  EXPECT_EQ(FirstDifference(FirstTouchSums(TwoNodes()), FirstTouchSums(made)), "0: owners");
  Case other = TwoNodes();
  other.request.held = {{{40}}, {{}}};
  EXPECT_EQ(FirstDifference(FirstTouchSums(made), FirstTouchSums(other)), "0: owners");
}

TEST(StepSumsTest, AnotherTierOfTheSameNodeChangesTheOwners) {
  Case one = TwoNodes();
  one.request.capacity_units = {{20, 20}, {20, 20}};
  Case other = one;
  one.request.held = {{{40}, {}}, {{}, {}}};
  other.request.held = {{{}, {40}}, {{}, {}}};
  EXPECT_EQ(FirstDifference(FirstTouchSums(one), FirstTouchSums(other)), "0: owners");
}

// Numbers that nodes of different builds must agree on.
TEST(StepSumsTest, AreFrozen) {
  const StepSums last = FirstTouchSums(TwoNodes()).back();
  EXPECT_EQ(last.ids, 13542973438989870698U);
  EXPECT_EQ(last.users, 3473032326767694188U);
  EXPECT_EQ(last.owners, 6537116823603434551U);
}

}  // namespace
}  // namespace headrace
