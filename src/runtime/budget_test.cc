#include "runtime/budget.h"

#include "base/prng.h"
#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(BudgetTest, NeverPassesTheMemoryAllowedAndAlwaysHoldsTheLeast) {
  Prng random(1, 0, RandomStream::kOrder);
  int made = 0;
  for (int i = 0; i < 20000; ++i) {
    BudgetNeeds needs{.memory_bytes = 1 + random.Below(kGiB),
                      .memory_limit_bytes = kGiB,
                      .batch_bytes = 1 + random.Below(200 * kMiB),
                      .batch_size = 1 + random.Below(512),
                      .read_bytes = 1 + random.Below(kMiB),
                      .batches_ahead = static_cast<std::uint32_t>(random.Below(3)) * 7};
    needs.read_bytes_max = needs.read_bytes + random.Below(4 * kMiB);
    const Result<Budget> budget = MakeBudget(needs);
    const std::uint64_t staging_least = std::max(needs.read_bytes_max, 2 * needs.read_bytes);
    ASSERT_EQ(budget.ok(), needs.memory_bytes >= staging_least + 2 * needs.batch_bytes);
    if (!budget.ok()) continue;
    ++made;
    ASSERT_LE(budget.value().staging_bytes + budget.value().batch_bytes, needs.memory_bytes);
    ASSERT_GE(budget.value().staging_bytes, staging_least);
    ASSERT_GE(budget.value().batch_bytes, 2 * needs.batch_bytes);
    ASSERT_GE(budget.value().batches_max, 1);
    ASSERT_LE(budget.value().batches_max * needs.batch_bytes, budget.value().batch_bytes);
  }
  EXPECT_GT(made, 5000);
}

TEST(BudgetTest, ResidentsBeyondTheMachineAreRefusedBeforeTheyFillIt) {
  BudgetNeeds needs{.memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB,
                    .resident_bytes = kGiB + 1,
                    .resident_fixed = true};
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory: the order keeps 1.0 GiB resident, the machine has 1.0 GiB; "
            "lower what is kept");
  needs.resident_fixed = false;  // takes what there is
  EXPECT_TRUE(MakeBudget(needs).ok());
  needs.resident_bytes = 0;
  needs.tier_bytes = kGiB + 1;
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory: tiers= take 1.0 GiB, the machine has 1.0 GiB; "
            "lower what is kept");
}

TEST(BudgetTest, TiersHaveWhatWasAskedForAndTheRestIsDividedAsWithout) {
  BudgetNeeds needs{.memory_bytes = 64 * kMiB,
                    .memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB};
  const Budget without = MakeBudget(needs).value();
  needs.memory_bytes += 100 * kMiB;
  needs.tier_bytes = 100 * kMiB;
  const Budget with = MakeBudget(needs).value();
  EXPECT_EQ(with.staging_bytes, without.staging_bytes);
  EXPECT_EQ(with.batch_bytes, without.batch_bytes);
  needs.memory_bytes = 100 * kMiB;
  EXPECT_EQ(MakeBudget(needs).status().code(), StatusCode::kInvalidArgument);
}

TEST(BudgetTest, ResidentsAndPinnedBlocksStayInsideTheMemoryAndFixedOnesAreWhole) {
  Prng random(2, 0, RandomStream::kOrder);
  int made = 0;
  for (int i = 0; i < 20000; ++i) {
    BudgetNeeds needs{.memory_bytes = 1 + random.Below(kGiB),
                      .memory_limit_bytes = kGiB,
                      .batch_bytes = 1 + random.Below(50 * kMiB),
                      .batch_size = 1 + random.Below(512),
                      .read_bytes = 1 + random.Below(kMiB),
                      .resident_bytes = 1 + random.Below(kGiB),
                      .resident_fixed = random.Below(2) == 0,
                      .pinned_bytes = random.Below(kGiB)};
    needs.read_bytes_max = needs.read_bytes + random.Below(4 * kMiB);
    const Result<Budget> made_budget = MakeBudget(needs);
    const std::uint64_t flow_least =
        std::max(needs.read_bytes_max, 2 * needs.read_bytes) + 2 * needs.batch_bytes;
    const std::uint64_t fixed = needs.resident_fixed ? needs.resident_bytes : 0;
    ASSERT_EQ(made_budget.ok(), needs.memory_bytes >= flow_least + fixed);
    if (!made_budget.ok()) continue;
    ++made;
    const Budget& budget = made_budget.value();
    const std::uint64_t flow = budget.staging_bytes + budget.batch_bytes;
    ASSERT_LE(flow + budget.resident_bytes + budget.pinned_bytes, needs.memory_bytes);
    ASSERT_LE(budget.resident_bytes, needs.resident_bytes);
    ASSERT_GE(budget.resident_bytes, fixed);
    ASSERT_LE(budget.pinned_bytes, needs.pinned_bytes);
    ASSERT_GE(budget.batch_bytes, 2 * needs.batch_bytes);
    // Nothing is pinned while residents want more.
    if (budget.pinned_bytes != 0) {
      ASSERT_EQ(budget.resident_bytes, needs.resident_bytes);
    }
  }
  EXPECT_GT(made, 4000);
}

TEST(BudgetTest, TooLittleMemorySaysHowMuchWouldDo) {
  const Status status = MakeBudget({.memory_bytes = 10 * kMiB,
                                    .batch_bytes = 100 * kMiB,
                                    .batch_size = 256,
                                    .read_bytes = kMiB,
                                    .read_bytes_max = 3 * kMiB})
                            .status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "memory 10.0 MiB: a batch of 256 samples takes 100.0 MiB, two are needed (the one in use "
      "and the next), and reads take 3.0 MiB; raise memory= to at least 203.0 MiB or lower "
      "batch_size=");
}

TEST(BudgetTest, TheDefaultStaysBelowAQuarterOfTheMachineUnlessTwoBatchesTakeMore) {
  const BudgetNeeds needs{.memory_limit_bytes = kGiB,
                          .batch_bytes = 60 * kMiB,
                          .batch_size = 8,
                          .read_bytes = kMiB,
                          .read_bytes_max = kMiB};
  const Budget budget = MakeBudget(needs).value();
  EXPECT_LE(budget.staging_bytes + budget.batch_bytes, kGiB / 4);
  BudgetNeeds large = needs;
  large.batch_bytes = 600 * kMiB;
  EXPECT_EQ(MakeBudget(large).value().batch_bytes, 1200 * kMiB);
}

TEST(BudgetTest, SmallBatchesAreReadFurtherAhead) {
  const BudgetNeeds needs{.memory_limit_bytes = 64 * kGiB,
                          .batch_bytes = 4096,
                          .batch_size = 4,
                          .read_bytes = 4096,
                          .read_bytes_max = 4096};
  EXPECT_GE(MakeBudget(needs).value().batches_max * 4, 64);
}

}  // namespace
}  // namespace headrace
