#include "peer/rate_budget.h"

#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Passes messages of `bytes` whenever it may, trying every `every_ns`. Returns the bytes.
std::uint64_t PassFor(RateBudget& budget, std::uint64_t bytes, std::int64_t from_ns,
                      std::int64_t until_ns, std::int64_t every_ns) {
  std::uint64_t passed = 0;
  for (std::int64_t now_ns = from_ns; now_ns < until_ns; now_ns += every_ns) {
    while (budget.MayPass(now_ns)) {
      budget.Pass(bytes, now_ns);
      passed += bytes;
    }
  }
  return passed;
}

TEST(RateBudgetTest, WithoutALimitEverythingPasses) {
  RateBudget budget;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(budget.MayPass(0));
    budget.Pass(1 << 30, 0);
  }
}

TEST(RateBudgetTest, NoMoreThanItsBytesASecondPass) {
  RateBudget budget;
  budget.Limit(100'000'000, 5 * kNsPerSecond);
  // What was saved passes at once; after that 100 MB a second.
  const std::uint64_t first = PassFor(budget, 100'000, 5 * kNsPerSecond, 5 * kNsPerSecond + 1, 1);
  EXPECT_EQ(first, 10'000'000U);
  const std::uint64_t passed =
      PassFor(budget, 100'000, 5 * kNsPerSecond, 15 * kNsPerSecond, 20 * kNsPerMs);
  EXPECT_GT(passed, 990'000'000U);
  EXPECT_LE(passed, 1'000'000'000U);
}

TEST(RateBudgetTest, AMessageThatOverdrawsItIsWaitedFor) {
  RateBudget budget;
  budget.Limit(1'000'000, 0);
  ASSERT_TRUE(budget.MayPass(0));
  budget.Pass(2'100'000, 0);  // 100,000 were saved.
  EXPECT_FALSE(budget.MayPass(1'999 * kNsPerMs));
  EXPECT_TRUE(budget.MayPass(2'001 * kNsPerMs));
}

TEST(RateBudgetTest, WhatIsNotUsedIsSavedForATenthOfASecondOnly) {
  RateBudget budget;
  budget.Limit(1'000'000, 0);
  EXPECT_TRUE(budget.MayPass(3'600 * kNsPerSecond));
  EXPECT_EQ(PassFor(budget, 1'000, 3'600 * kNsPerSecond, 3'600 * kNsPerSecond + 1, 1), 100'000U);
}

TEST(RateBudgetTest, AClockThatThreadsReadOutOfOrderGivesNothingTwice) {
  RateBudget budget;
  budget.Limit(1'000'000, 0);
  budget.Pass(100'000, 0);
  EXPECT_TRUE(budget.MayPass(10 * kNsPerMs));
  budget.Pass(10'000, 5 * kNsPerMs);
  EXPECT_FALSE(budget.MayPass(10 * kNsPerMs));
}

}  // namespace
}  // namespace headrace
