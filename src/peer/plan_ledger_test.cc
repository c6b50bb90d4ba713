#include "peer/plan_ledger.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// Three nodes, as node 1 hears them.
class PlanLedgerTest : public testing::Test {
 protected:
  // Steps with the numbers {step, 100, 200} each.
  static PlannedSteps Steps(std::uint64_t epoch, std::uint64_t step, std::size_t count,
                            std::uint64_t round = 1) {
    PlannedSteps steps{.round = round, .epoch = epoch, .step = step, .sums = {}};
    for (std::size_t i = 0; i < count; ++i) steps.sums.push_back({step + i, 100, 200});
    return steps;
  }

  PlanLedger ledger_{1, 3};
};

TEST_F(PlanLedgerTest, EqualPlansAreComparedWhicheverNodeIsAhead) {
  ledger_.Begin(1);
  EXPECT_TRUE(ledger_.Say(0, Steps(0, 0, 4)).ok());
  EXPECT_EQ(ledger_.compared(), 0U);
  ledger_.Plan(Steps(0, 0, 2));
  EXPECT_EQ(ledger_.compared(), 2U);
  ledger_.Plan(Steps(0, 2, 6));
  EXPECT_EQ(ledger_.compared(), 4U);
  EXPECT_TRUE(ledger_.Say(2, Steps(0, 0, 8)).ok());
  EXPECT_EQ(ledger_.compared(), 12U);
  EXPECT_FALSE(ledger_.Take().has_value());
}

TEST_F(PlanLedgerTest, NamesNodeStepFieldAndTheLastStepThatWasEqual) {
  ledger_.Begin(1);
  ledger_.Plan(Steps(2, 0, 8));
  PlannedSteps other = Steps(2, 0, 8);
  for (std::size_t i = 5; i < 8; ++i) other.sums[i][2] = 7;
  EXPECT_TRUE(ledger_.Say(2, other).ok());
  const std::optional<PlanDifference> found = ledger_.Take();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->node, 2U);
  EXPECT_EQ(found->at, PlannedAt(2, 5));
  EXPECT_EQ(found->field, 2U);
  EXPECT_EQ(found->agreed, PlannedAt(2, 4));
}

TEST_F(PlanLedgerTest, ADifferenceIsFoundByThePlanThatComesLaterToo) {
  ledger_.Begin(1);
  PlannedSteps other = Steps(0, 0, 3);
  other.sums[0][0] = 99;
  EXPECT_TRUE(ledger_.Say(0, other).ok());
  EXPECT_FALSE(ledger_.Take().has_value());
  ledger_.Plan(Steps(0, 0, 1));
  const std::optional<PlanDifference> found = ledger_.Take();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->field, 0U);
  EXPECT_EQ(found->agreed, std::nullopt);
  ledger_.Plan(Steps(0, 1, 2));
  EXPECT_FALSE(ledger_.Take().has_value()) << "one of a run is enough";
}

TEST_F(PlanLedgerTest, AMessageThatIsLostHidesNoDifferenceOfLaterSteps) {
  ledger_.Begin(1);
  ledger_.Plan(Steps(0, 0, 12));
  EXPECT_TRUE(ledger_.Say(0, Steps(0, 0, 4)).ok());
  PlannedSteps other = Steps(0, 8, 4);
  other.sums[0][1] = 1;
  EXPECT_TRUE(ledger_.Say(0, other).ok());
  const std::optional<PlanDifference> found = ledger_.Take();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->at, PlannedAt(0, 8));
  EXPECT_EQ(found->agreed, PlannedAt(0, 3));
}

TEST_F(PlanLedgerTest, NamesTheFirstStepThatDiffersThoughItsMessageWasOvertaken) {
  ledger_.Begin(1);
  ledger_.Plan(Steps(0, 0, 8));
  PlannedSteps other = Steps(0, 0, 8);
  for (std::size_t i = 2; i < 8; ++i) other.sums[i][1] = 7;
  for (const std::size_t step : {5U, 1U, 2U, 0U, 7U}) {
    EXPECT_TRUE(
        ledger_.Say(0, {.round = 1, .epoch = 0, .step = step, .sums = {other.sums[step]}}).ok());
  }
  const std::optional<PlanDifference> found = ledger_.Take();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->at, PlannedAt(0, 2));
  EXPECT_EQ(found->agreed, PlannedAt(0, 1));
}

TEST_F(PlanLedgerTest, ANodeMayBeARunAheadAndALateMessageIsOfNoUse) {
  ledger_.Begin(1);
  ledger_.Plan(Steps(0, 0, 1));
  EXPECT_TRUE(ledger_.Say(0, Steps(0, 0, 4, 2)).ok());
  EXPECT_TRUE(ledger_.Say(0, Steps(0, 0, 1, 1)).ok()) << "late";
  EXPECT_EQ(ledger_.compared(), 0U);
  ledger_.Begin(2);
  ledger_.Plan(Steps(0, 0, 4, 1));
  EXPECT_EQ(ledger_.compared(), 0U) << "the planner of a run that was left";
  ledger_.Plan(Steps(0, 0, 4, 2));
  EXPECT_EQ(ledger_.compared(), 4U);
}

TEST_F(PlanLedgerTest, EachRunReportsItsOwnDifference) {
  PlannedSteps other = Steps(0, 0, 1);
  other.sums[0][0] = 99;
  for (const std::uint64_t round : {1U, 2U}) {
    ledger_.Begin(round);
    other.round = round;
    ledger_.Plan(Steps(0, 0, 1, round));
    EXPECT_TRUE(ledger_.Say(0, other).ok());
    EXPECT_TRUE(ledger_.Take().has_value()) << round;
    EXPECT_FALSE(ledger_.Take().has_value()) << round;
  }
}

TEST_F(PlanLedgerTest, OldStepsAreForgotten) {
  ledger_.Begin(1);
  ledger_.Plan(Steps(0, 0, PlanLedger::kStepsKept));
  ledger_.Plan(Steps(1, 0, 1));
  EXPECT_TRUE(ledger_.Say(0, Steps(0, 0, 2)).ok());
  EXPECT_EQ(ledger_.compared(), 1U) << "step 0 is forgotten, step 1 is kept";
  EXPECT_TRUE(ledger_.Say(2, Steps(2, 0, PlanLedger::kStepsKept)).ok());
  EXPECT_TRUE(ledger_.Say(2, Steps(3, 0, 2)).ok());
  for (std::uint64_t at = 0; at < PlanLedger::kStepsKept; at += 64) ledger_.Plan(Steps(2, at, 64));
  EXPECT_EQ(ledger_.compared(), 1U + PlanLedger::kStepsKept - 2);
}

TEST_F(PlanLedgerTest, RefusesOtherNodesFarRunsAndTooManySteps) {
  ledger_.Begin(1);
  EXPECT_THAT(std::string(ledger_.Say(3, Steps(0, 0, 1)).message()), HasSubstr("node 3 says"));
  EXPECT_EQ(ledger_.Say(1, Steps(0, 0, 1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_.Say(0, Steps(0, 0, 1, 2 + PlanLedger::kRoundsAhead)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_.Say(0, Steps(0, 0, PlanLedger::kStepsKept + 1)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_.compared(), 0U);
}

}  // namespace
}  // namespace headrace
