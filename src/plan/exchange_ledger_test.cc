// The ledger refuses streams of two nodes that do not fit each other.

#include "plan/testing/exchange_ledger.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

// Samples 0..3 lie on node 0, 4..7 on node 1. In one step node 0 delivers 0, 4 and node 1 1, 5.
std::vector<Step> Steps() {
  std::vector<Step> steps(2);
  steps[0].ends_epoch = steps[1].ends_epoch = true;
  BlockRead own;
  own.count = 2;
  BlockRead parcel;
  parcel.number = 1;
  parcel.count = 1;
  for (std::uint32_t node = 0; node < 2; ++node) {
    const std::uint32_t other = 1 - node;
    own.first = SampleId{std::uint64_t{4} * node};
    parcel.first = SampleId{node == 0 ? 4U : 1U};
    parcel.home = other;
    steps[node].reads = {own, parcel};
    const SampleId kept{node == 0 ? 0U : 5U};
    const SampleId sent{node == 0 ? 1U : 4U};
    steps[node].parcels = {
        {.node = other, .number = 0, .samples = {{.block_read = 0, .sample = sent}}}};
    steps[node].deliveries = {
        {.sample = kept, .rank = node, .slot = 0, .block_read = 0},
        {.sample = parcel.first, .rank = node, .slot = 1, .block_read = 1},
    };
  }
  return steps;
}

// What the ledger says of the steps; empty: that they are right.
std::string Complaint(const std::vector<Step>& steps, std::uint64_t limit = 3) {
  const auto blocks = MakeUniformBlocks(8, 4);
  OrderOptions job;
  job.sample_count = 4;  // of the eight
  job.batch_size = 2;
  job.world_size = 2;
  job.exchange = true;
  ExchangeLedger ledger(*blocks, job, {limit, limit},
                        [](std::uint64_t sample) { return sample < 4 ? 0 : 1; });
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    ledger.Run(steps);
    if (!testing::Test::HasFatalFailure()) ledger.Finish();
  }
  return results.size() == 0 ? "" : results.GetTestPartResult(0).message();
}

TEST(ExchangeLedgerTest, StreamsThatFitAreRight) { EXPECT_EQ(Complaint(Steps()), ""); }

TEST(ExchangeLedgerTest, EachMistakeIsFound) {
  const auto broken = [](const std::function<void(std::vector<Step>&)>& change) {
    std::vector<Step> steps = Steps();
    change(steps);
    return Complaint(steps);
  };
  EXPECT_THAT(broken([](auto& steps) { steps[0].parcels[0].number = 1; }), HasSubstr("number"));
  EXPECT_THAT(broken([](auto& steps) { steps[0].parcels.clear(); }),
              HasSubstr("is not sent in this step"));
  EXPECT_THAT(broken([](auto& steps) {
                steps[1].reads.pop_back();
                steps[1].deliveries[1].block_read = kNoBlockRead;
              }),
              HasSubstr("reads what another node has"));
  EXPECT_THAT(
      broken([](auto& steps) {
        steps[0].reads[0].count = 3;
        steps[0].parcels.push_back(
            {.node = 1, .number = 1, .samples = {{.block_read = 0, .sample = SampleId{2}}}});
      }),
      HasSubstr("is expected by no read"));
  EXPECT_THAT(broken([](auto& steps) { steps[1].reads[1].first = SampleId{2}; }),
              HasSubstr("parcel->second"));
  EXPECT_THAT(broken([](auto& steps) { steps[1].reads[0].first = SampleId{0}; }),
              HasSubstr("reads what another node has"));
  EXPECT_THAT(broken([](auto& steps) { steps[1].reads[1].again = true; }), ::testing::IsEmpty());
  EXPECT_THAT(broken([](auto& steps) { steps[0].deliveries[0].sample = SampleId{1}; }),
              HasSubstr("sample 1"));
  EXPECT_THAT(broken([](auto& steps) { steps[0].deliveries[1].rank = 1; }), HasSubstr("rank"));
  EXPECT_THAT(broken([](auto& steps) { steps[0].parcels[0].samples[0].sample = SampleId{4}; }),
              HasSubstr("sends a sample that it was sent"));
  EXPECT_THAT(Complaint(Steps(), 1), HasSubstr("read 0"));
}

// Each sends all that it reads, and has memory for what comes only when that is gone.
TEST(ExchangeLedgerTest, ACircleIsFound) {
  std::vector<Step> steps = Steps();
  for (std::uint32_t node = 0; node < 2; ++node) {
    const std::uint64_t own = std::uint64_t{4} * node;
    const std::uint64_t others = 4 - own;
    steps[node].parcels[0].samples = {{.block_read = 0, .sample = SampleId{own}},
                                      {.block_read = 0, .sample = SampleId{own + 1}}};
    steps[node].reads[1].first = SampleId{others};
    steps[node].reads[1].count = 2;
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      steps[node].deliveries[slot].sample = SampleId{others + slot};
      steps[node].deliveries[slot].block_read = 1;
    }
  }
  EXPECT_EQ(Complaint(steps, 4), "");
  EXPECT_THAT(Complaint(steps, 3), HasSubstr("node 0 waits for memory"));
}

}  // namespace
}  // namespace headrace
