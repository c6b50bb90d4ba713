#include "store/objects/retry_budget.h"

#include <algorithm>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(RetryBudgetTest, IsFullAtFirstAndGetsATenthOfATokenForASuccess) {
  RetryBudget budget({.tokens_max = 3, .hedges_max = 1});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeRetry());
  for (int i = 0; i < 9; ++i) budget.Success();
  EXPECT_FALSE(budget.TakeRetry());
  budget.Success();
  EXPECT_TRUE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeRetry());
  for (int i = 0; i < 1000; ++i) budget.Success();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeRetry());
}

TEST(RetryBudgetTest, AHedgeNeedsTwentySuccessesAndATokenOfRetries) {
  RetryBudget budget({.tokens_max = 2, .hedges_max = 5});
  for (int i = 0; i < 19; ++i) budget.Success();
  EXPECT_FALSE(budget.TakeHedge());
  for (int i = 0; i < 81; ++i) budget.Success();
  EXPECT_TRUE(budget.TakeHedge());
  EXPECT_TRUE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeHedge()) << "the token was taken";
  for (int i = 0; i < 10; ++i) budget.Success();
  EXPECT_TRUE(budget.TakeHedge());
}

TEST(RetryBudgetTest, RandomUseStaysWithinBothBounds) {
  Prng prng(11, 0, RandomStream::kOrder);
  for (int round = 0; round < 100; ++round) {
    const auto tokens_max = static_cast<std::uint32_t>(1 + prng.Below(20));
    const auto hedges_max = static_cast<std::uint32_t>(1 + prng.Below(20));
    RetryBudget budget({.tokens_max = tokens_max, .hedges_max = hedges_max});
    std::uint64_t successes = 0;
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t in_a_row = 0;
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t what = prng.Below(12);
      if (what < 10) {
        ++successes;
        budget.Success();
        in_a_row = 0;
      } else if (what == 10 ? budget.TakeRetry() : budget.TakeHedge()) {
        ++(what == 10 ? retries : hedges);
        ASSERT_LE(++in_a_row, tokens_max);
      }
      ASSERT_LE(20 * hedges, successes);
      ASSERT_LE(10 * (retries + hedges), successes + std::uint64_t{10} * tokens_max);
    }
    EXPECT_GT(retries, 0U);
  }
}

}  // namespace
}  // namespace headrace
