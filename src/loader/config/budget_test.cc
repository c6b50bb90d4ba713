#include "loader/config/budget.h"

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
                      .read_bytes = 1 + random.Below(kMiB)};
    const auto sevens = static_cast<std::uint32_t>(random.Below(3));
    if (sevens != 0) needs.prefetch = sevens * 7;
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

TEST(BudgetTest, AsManyBatchesAsPrefetchSaysIfTheMemoryHoldsThem) {
  BudgetNeeds needs{.memory_bytes = kGiB,
                    .memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .batch_size = 8,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB};
  EXPECT_EQ(MakeBudget(needs).value().batches_max, 64);
  needs.prefetch = 400;
  EXPECT_EQ(MakeBudget(needs).value().batches_max, 400);
  needs.memory_bytes = 100 * kMiB;
  EXPECT_LT(MakeBudget(needs).value().batches_max, 100);
}

TEST(BudgetTest, ResidentsBeyondTheMachineAreRefusedBeforeTheyFillIt) {
  BudgetNeeds needs{.memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB,
                    .resident_bytes = kGiB + 1};
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory: the order keeps 1.0 GiB resident, the machine has 1.0 GiB; "
            "lower what is kept");
  needs.resident_bytes = 0;
  needs.tier_bytes = kGiB + 1;
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory: tiers= take 1.0 GiB, the machine has 1.0 GiB; "
            "lower what is kept");
}

TEST(BudgetTest, RequestsOfTheStoreHaveAShareAndAreNamedWhereTheMemoryIsTooSmall) {
  BudgetNeeds needs{.memory_bytes = 64 * kMiB,
                    .memory_limit_bytes = 16 * kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB,
                    .request_bytes_least = 4 * kMiB,
                    .request_bytes_useful = 256 * kMiB};
  const Budget budget = MakeBudget(needs).value();
  EXPECT_EQ(budget.request_bytes, 16 * kMiB);
  EXPECT_LE(budget.request_bytes + budget.staging_bytes + budget.batch_bytes, needs.memory_bytes);
  needs.resident_bytes = 16 * kMiB;
  EXPECT_EQ(MakeBudget(needs).value().request_bytes, 8 * kMiB);
  needs.resident_bytes = 0;
  needs.memory_bytes = 7 * kMiB;
  EXPECT_GE(MakeBudget(needs).value().request_bytes, 4 * kMiB) << "lowered, to the least";
  needs.memory_bytes = 5 * kMiB;
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory 5.0 MiB: a batch of 1 sample takes 1.0 MiB, two are needed "
            "(the one in use and the next), and reads take 2.0 KiB, requests of the object store "
            "4.0 MiB; raise memory= to at least 7.0 MiB or lower batch_size=");
  needs.memory_bytes = 0;
  EXPECT_EQ(MakeBudget(needs).value().request_bytes, 256 * kMiB);
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

TEST(BudgetTest, ResidentsAreWholeAndPinnedBlocksStayInsideTheMemory) {
  Prng random(2, 0, RandomStream::kOrder);
  int made = 0;
  for (int i = 0; i < 20000; ++i) {
    BudgetNeeds needs{.memory_bytes = 1 + random.Below(kGiB),
                      .memory_limit_bytes = kGiB,
                      .batch_bytes = 1 + random.Below(50 * kMiB),
                      .batch_size = 1 + random.Below(512),
                      .read_bytes = 1 + random.Below(kMiB),
                      .resident_bytes = 1 + random.Below(kGiB),
                      .pinned_bytes = random.Below(kGiB)};
    needs.read_bytes_max = needs.read_bytes + random.Below(4 * kMiB);
    const Result<Budget> made_budget = MakeBudget(needs);
    const std::uint64_t flow_least =
        std::max(needs.read_bytes_max, 2 * needs.read_bytes) + 2 * needs.batch_bytes;
    ASSERT_EQ(made_budget.ok(), needs.memory_bytes >= flow_least + needs.resident_bytes);
    if (!made_budget.ok()) continue;
    ++made;
    const Budget& budget = made_budget.value();
    const std::uint64_t flow = budget.staging_bytes + budget.batch_bytes;
    ASSERT_LE(flow + budget.resident_bytes + budget.pinned_bytes, needs.memory_bytes);
    ASSERT_EQ(budget.resident_bytes, needs.resident_bytes);
    ASSERT_LE(budget.pinned_bytes, needs.pinned_bytes);
    ASSERT_GE(budget.batch_bytes, 2 * needs.batch_bytes);
  }
  EXPECT_GT(made, 4000);
}

TEST(BudgetTest, DecodesAndResultsHaveTheirSharesInsideTheMemoryAndNobodyLosesTheLeast) {
  Prng random(3, 0, RandomStream::kOrder);
  int made = 0;
  for (int i = 0; i < 20000; ++i) {
    BudgetNeeds needs{.memory_bytes = 1 + random.Below(kGiB),
                      .memory_limit_bytes = kGiB,
                      .batch_bytes = 1 + random.Below(50 * kMiB),
                      .batch_size = 1 + random.Below(512),
                      .read_bytes = 1 + random.Below(kMiB),
                      .tier_bytes = random.Below(2) * random.Below(100 * kMiB),
                      .scratch_bytes_least = random.Below(2) * kMiB,
                      .scratch_bytes_max = 100 * kMiB,
                      .results = random.Below(2) == 0,
                      .decoded_bytes_least = random.Below(2) * random.Below(100 * kMiB),
                      .resident_bytes = random.Below(2) * random.Below(kGiB)};
    needs.read_bytes_max = needs.read_bytes + random.Below(4 * kMiB);
    needs.decoded_bytes_useful = 3 * needs.decoded_bytes_least;
    const Result<Budget> made_budget = MakeBudget(needs);
    const std::uint64_t least = std::max(needs.read_bytes_max, 2 * needs.read_bytes) +
                                2 * needs.batch_bytes + needs.tier_bytes + needs.resident_bytes +
                                needs.scratch_bytes_least + needs.decoded_bytes_least +
                                (needs.results ? needs.batch_bytes : 0);
    ASSERT_EQ(made_budget.ok(), needs.memory_bytes >= least);
    if (!made_budget.ok()) continue;
    ++made;
    const Budget& budget = made_budget.value();
    ASSERT_LE(budget.staging_bytes + budget.batch_bytes + budget.resident_bytes +
                  budget.pinned_bytes + budget.scratch_bytes + budget.results_bytes +
                  budget.decoded_bytes + needs.tier_bytes,
              needs.memory_bytes);
    ASSERT_GE(budget.batch_bytes, 2 * needs.batch_bytes);
    ASSERT_EQ(budget.scratch_bytes == 0, needs.scratch_bytes_least == 0);
    ASSERT_GE(budget.scratch_bytes, needs.scratch_bytes_least);
    ASSERT_LE(budget.scratch_bytes, needs.scratch_bytes_max);
    ASSERT_EQ(budget.results_bytes == 0, !needs.results);
    ASSERT_GE(budget.results_bytes, needs.results ? needs.batch_bytes : 0);
    ASSERT_GE(budget.decoded_bytes, needs.decoded_bytes_least);
    ASSERT_LE(budget.decoded_bytes, needs.decoded_bytes_useful);
  }
  EXPECT_GT(made, 3000);
}

TEST(BudgetTest, DecodedObjectsHaveHalfOfTheMemoryAndAQuarterBesideResidents) {
  BudgetNeeds needs{.memory_bytes = 256 * kMiB,
                    .memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB,
                    .decoded_bytes_least = 10 * kMiB,
                    .decoded_bytes_useful = 384 * kMiB};
  EXPECT_EQ(MakeBudget(needs).value().decoded_bytes, 128 * kMiB);
  const std::uint64_t room = ResidentRoom(needs, 1);
  needs.resident_bytes = 10 * kMiB;
  EXPECT_EQ(MakeBudget(needs).value().decoded_bytes, 64 * kMiB);
  needs.resident_bytes = room;
  EXPECT_EQ(MakeBudget(needs).value().decoded_bytes, 64 * kMiB);
  needs.resident_bytes = 0;
  needs.decoded_bytes_useful = 20 * kMiB;
  EXPECT_EQ(MakeBudget(needs).value().decoded_bytes, 20 * kMiB);
  needs.memory_bytes = 11 * kMiB;
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory 11.0 MiB: a batch of 1 sample takes 1.0 MiB, two are needed "
            "(the one in use and the next), and reads take 2.0 KiB, and files or row groups that "
            "are decoded as a whole take 10.0 MiB; raise memory= to at least 13.0 MiB, or lower "
            "batch_size= or what is kept");
  needs.memory_bytes = 0;
  needs.decoded_bytes_least = needs.decoded_bytes_useful = 2 * kGiB;
  EXPECT_EQ(MakeBudget(needs).status().ToString(),
            "InvalidArgument: memory: files or row groups that are decoded as a whole take 2.0 "
            "GiB, the machine has 1.0 GiB; lower what is kept");
}

TEST(BudgetTest, DecodesHaveAQuarterOfTheMemoryAndResultsHalfOfIt) {
  BudgetNeeds needs{.memory_bytes = 256 * kMiB,
                    .memory_limit_bytes = kGiB,
                    .batch_bytes = kMiB,
                    .read_bytes = kKiB,
                    .read_bytes_max = kKiB,
                    .scratch_bytes_least = kMiB,
                    .scratch_bytes_max = kGiB};
  EXPECT_EQ(MakeBudget(needs).value().scratch_bytes, 64 * kMiB);
  needs.resident_bytes = 10 * kMiB;
  EXPECT_EQ(MakeBudget(needs).value().scratch_bytes, 32 * kMiB);
  needs.resident_bytes = 0;
  needs.scratch_bytes_least = 0;
  needs.results = true;
  EXPECT_EQ(MakeBudget(needs).value().scratch_bytes, 0);
  EXPECT_NEAR(static_cast<double>(MakeBudget(needs).value().results_bytes), 128.0 * kMiB,
              2.0 * kMiB);
}

// A process of several ranks has as much room for each as one rank alone has, beside the minimums.
TEST(BudgetTest, RanksThatFillTheirRoomHaveABudgetTogether) {
  Prng random(4, 0, RandomStream::kOrder);
  int filled = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t ranks = 1 + random.Below(16);
    BudgetNeeds rank{.memory_bytes = random.Below(4) == 0 ? 0 : 1 + random.Below(kGiB),
                     .memory_limit_bytes = 64 * kGiB,
                     .batch_bytes = 1 + random.Below(50 * kMiB),
                     .batch_size = 1 + random.Below(512),
                     .read_bytes = 1 + random.Below(kMiB),
                     .tier_bytes = random.Below(2) * random.Below(100 * kMiB),
                     .scratch_bytes_least = random.Below(2) * kMiB,
                     .scratch_bytes_max = kGiB,
                     .results = random.Below(2) == 0};
    rank.read_bytes_max = rank.read_bytes + random.Below(4 * kMiB);
    if (!MakeBudget(rank).ok()) continue;  // Not even without residents.
    BudgetNeeds all = rank;
    all.memory_bytes *= ranks;
    all.batch_bytes *= ranks;
    all.batch_size *= ranks;
    all.tier_bytes *= ranks;
    all.scratch_bytes_least *= ranks;
    all.scratch_bytes_max *= ranks;
    rank.resident_bytes = ResidentRoom(rank, /*world_size=*/16);
    all.resident_bytes = ranks * rank.resident_bytes;
    for (const BudgetNeeds& needs : {rank, all}) {
      const Result<Budget> budget = MakeBudget(needs);
      ASSERT_TRUE(budget.ok()) << budget.status().ToString();
      if (needs.memory_bytes == 0) {
        ASSERT_LE(needs.resident_bytes, needs.memory_limit_bytes / 4 / 4 * 3);
      }
    }
    if (rank.resident_bytes != 0) ++filled;
  }
  EXPECT_GT(filled, 4000);
}

TEST(BudgetTest, StandInsHaveRoomBesideTheBatchesWhereMemoryIsLeft) {
  BudgetNeeds needs{.memory_bytes = kGiB,
                    .memory_limit_bytes = 4 * kGiB,
                    .batch_bytes = 64 * kKiB,
                    .batch_size = 4,
                    .read_bytes = 16 * kKiB,
                    .read_bytes_max = 64 * kKiB};
  for (const std::uint64_t memory : {kGiB, std::uint64_t{0}}) {
    for (const std::uint64_t resident : {std::uint64_t{0}, 16 * kMiB}) {
      needs.memory_bytes = memory;
      needs.resident_bytes = resident;
      needs.stand_in_bytes = 0;
      const Budget without = MakeBudget(needs).value();
      needs.stand_in_bytes = 64 * kKiB;
      const Budget with = MakeBudget(needs).value();
      EXPECT_EQ(with.batches_max, without.batches_max);
      EXPECT_EQ(with.staging_bytes, without.staging_bytes);
      EXPECT_EQ(with.batch_bytes - without.batch_bytes,
                (std::uint64_t{with.batches_max} + 2) * 64 * kKiB);
    }
  }
  needs = {.memory_bytes = 320 * kKiB,
           .memory_limit_bytes = kGiB,
           .batch_bytes = 64 * kKiB,
           .read_bytes = 16 * kKiB,
           .read_bytes_max = 64 * kKiB,
           .stand_in_bytes = 64 * kKiB};
  const Budget little = MakeBudget(needs).value();
  EXPECT_LE(little.staging_bytes + little.batch_bytes, needs.memory_bytes);
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

TEST(BudgetTest, ParcelsHaveAQuarterOfWhatIsForReadsUpToALimit) {
  EXPECT_EQ(ParcelBytes(40 * kMiB), 10 * kMiB);
  EXPECT_EQ(ParcelBytes(kGiB), 64 * kMiB);
}

}  // namespace
}  // namespace headrace
