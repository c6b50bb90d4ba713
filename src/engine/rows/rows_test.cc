#include "engine/rows/rows.h"

#include <memory>
#include <string>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Rows without tiers and blocks.
class RowsTest : public ::testing::Test {
 protected:
  // Plans a step of these samples, and runs until nothing is left to do.
  std::unique_ptr<StepWork> RunStep(const std::vector<std::uint64_t>& samples,
                                    bool substitute = false) {
    test_.options.on_error = substitute ? OnError::kSubstitute : OnError::kRaise;
    test_.options.seed = 3;
    auto work = test_.MakeWork(samples);
    fetcher_.Plan(*work);
    while (!queues_.nothing_to_read()) {
      fetcher_.IssueReads();
      test_.Run();
    }
    EXPECT_TRUE(test_.inbox.idle());
    EXPECT_EQ(work->samples_left, 0U);
    EXPECT_EQ(test_.staging->stats().used_bytes, 0U);
    return work;
  }
  std::string Payload(std::uint64_t sample) const {
    return test_.index.Payload(0, SampleId{sample});
  }

  LoopHarness test_;
  LaneQueues queues_{{{.batch_memory = BufferPool::Make(kMiB),
                       .staging = test_.staging,
                       .executor = &test_.executor}},
                     nullptr};
  RowFetcher fetcher_{test_.loop, queues_, nullptr, rows_};
  Rows rows_{test_.loop, queues_, {}, fetcher_};
};

TEST_F(RowsTest, RowsAreReadAndDecodedIntoTheirSlots) {
  const auto work = RunStep({4, 1, 1, 0});
  EXPECT_FALSE(work->error.has_value());
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    EXPECT_EQ(test_.RowOf(*work, slot), Payload(Raw(work->batch->samples[slot])));
  }
}

TEST_F(RowsTest, AStepHasTheErrorOfItsLowestSlotThatFailed) {
  test_.index.columns[0].checksums[1] = 0;
  test_.storage.broken = {600};
  const auto work = RunStep({0, 1, 6});
  ASSERT_TRUE(work->error.has_value());
  EXPECT_EQ(work->error->first, 1U);
  EXPECT_EQ(work->error->second.code(), StatusCode::kDataLoss);
  EXPECT_EQ(std::string(work->error->second.message()).substr(0, 30),
            "epoch 0 step 0 sample 1 (a): f");
}

TEST_F(RowsTest, AnotherSampleStandsInForADamagedOneAndTheReasonIsNoted) {
  test_.index.columns[0].checksums[1] = 0;
  const auto work = RunStep({0, 1}, /*substitute=*/true);
  EXPECT_FALSE(work->error.has_value());
  const SampleId given = work->batch->samples[1];
  EXPECT_NE(given, SampleId{1});
  EXPECT_EQ(test_.RowOf(*work, 1), Payload(Raw(given)));
  EXPECT_EQ(work->samples[1].reason.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(work->samples[0].reason.ok());
}

TEST_F(RowsTest, WhereNoSampleCanBeReadTheStepFailsAfterManyDraws) {
  for (std::uint64_t& checksum : test_.index.columns[0].checksums) checksum = 0;
  const auto work = RunStep({0}, /*substitute=*/true);
  ASSERT_TRUE(work->error.has_value());
  EXPECT_EQ(work->samples[0].draws, 128U);
  EXPECT_EQ(work->error->second.code(), StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(work->error->second.message()),
      testing::AllOf(testing::StartsWith("epoch 0 step 0 sample "),
                     testing::HasSubstr("the last of 128 samples drawn to replace sample 0 "
                                        "of 8, the most that on_error=\"substitute\" draws"),
                     testing::HasSubstr("headrace verify")));
}

TEST_F(RowsTest, OneGoodSampleAmongManyStandsInForAllOthers) {
  std::vector<std::uint64_t>& checksums = test_.index.columns[0].checksums;
  for (std::size_t sample = 0; sample < checksums.size(); ++sample) {
    if (sample != 4) checksums[sample] = 0;
  }
  const auto work = RunStep({0, 1, 2, 3, 5, 6, 7}, /*substitute=*/true);
  ASSERT_FALSE(work->error.has_value()) << work->error->second.ToString();
  std::uint32_t most = 0;
  for (std::uint32_t slot = 0; slot < 7; ++slot) {
    EXPECT_EQ(work->batch->samples[slot], SampleId{4});
    EXPECT_EQ(test_.RowOf(*work, slot), Payload(4));
    most = std::max(most, work->samples[slot].draws);
  }
  EXPECT_GT(most, 8U);
}

TEST_F(RowsTest, ASampleThatTheIndexDoesNotHaveFailsWithoutARead) {
  const auto work = RunStep({99});
  ASSERT_TRUE(work->error.has_value());
  EXPECT_EQ(work->error->second.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(test_.storage.read, testing::IsEmpty());
}

TEST_F(RowsTest, OnceTheRunHasEndedNothingStandsIn) {
  test_.options.on_error = OnError::kSubstitute;
  test_.index.columns[0].checksums[1] = 0;
  const auto work = test_.MakeWork({1});
  fetcher_.Plan(*work);
  fetcher_.IssueReads();
  test_.loop.ended = true;
  test_.Run();
  EXPECT_EQ(work->batch->samples[0], SampleId{1});
  EXPECT_TRUE(queues_.nothing_to_read());
}

}  // namespace
}  // namespace headrace
