#include "loader/planning/rank_batches.h"

#include <algorithm>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "loader/testing/bytes_dataset.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamples = 97;
constexpr std::uint32_t kRanks = 4;

using Lane = RankBatches::Lane;

LoaderOptions OptionsOf(const std::string& order, std::uint32_t rank) {
  LoaderOptions options;
  options.job.world_size = kRanks;
  options.job.batch_size = 5;
  options.job.rank = rank;
  options.job.seed = 3;
  options.job.epochs = 2;
  options.order.name = order;
  return options;
}

class RankBatchesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterPapers(); }

  // Every batch from `start` on: the step's number, then the samples.
  std::vector<std::vector<std::uint64_t>> All(const std::string& order, std::uint32_t rank,
                                              Lane lane, Position start) const {
    Result<std::unique_ptr<RankBatches>> made =
        RankBatches::Make(dataset_.index(), OptionsOf(order, rank), lane, start);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    if (!made.ok()) return {};
    std::vector<std::vector<std::uint64_t>> batches;
    while (const std::optional<RankBatches::Batch> batch = made.value()->Next()) {
      std::vector<std::uint64_t>& numbers = batches.emplace_back();
      numbers = {batch->epoch, batch->step, static_cast<std::uint64_t>(batch->ends_epoch)};
      numbers.insert(numbers.end(), batch->samples.begin(), batch->samples.end());
    }
    return batches;
  }

  const BytesDataset dataset_{
      {.samples = kSamples, .sample_bytes_max = 30, .blocks = {20, 20, 20, 20, 17}}};
};

TEST_F(RankBatchesTest, ARankGetsTheSameSamplesWhetherItsEngineServesOthersOrNot) {
  for (const std::string order : {"exact", "batch", "epoch", "redox"}) {
    std::map<std::uint64_t, int> counts;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto alone = All(order, rank, {}, {});
      ASSERT_FALSE(alone.empty());
      EXPECT_EQ(All(order, rank, {.place = rank % 2, .count = 2}, {}), alone) << order;
      for (const auto& batch : alone) {
        for (std::size_t i = 3; batch[0] == 0 && i < batch.size(); ++i) ++counts[batch[i]];
      }
    }
    EXPECT_EQ(counts.size(), kSamples) << order;  // All ranks together: every sample of an epoch.
  }
}

TEST_F(RankBatchesTest, BeginAtAnyStep) {
  for (const std::string order : {"exact", "batch", "epoch", "redox"}) {
    const auto whole = All(order, 1, {}, {});
    const auto rest = All(order, 1, {}, {.epoch = 1, .step = 2});
    ASSERT_GT(whole.size(), rest.size());
    EXPECT_EQ(rest.front()[0], 1U);
    EXPECT_EQ(rest.front()[1], 2U);
    EXPECT_EQ(rest.back()[2], 1U);
    EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), whole.rbegin())) << order;
  }
}

TEST_F(RankBatchesTest, ALaneThatIsNoneOrBeforeRank0IsRefused) {
  const auto refused = [this](std::uint32_t rank, Lane lane) {
    const Status status =
        RankBatches::Make(dataset_.index(), OptionsOf("exact", rank), lane, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refused(3, {.place = 2, .count = 2}),
            "planning the batches of rank 3: got lane 2 of 2, must be below 2 and at most the "
            "rank");
  EXPECT_EQ(refused(0, {.place = 1, .count = 2}),
            "planning the batches of rank 0: got lane 1 of 2, must be below 2 and at most the "
            "rank");
}

}  // namespace
}  // namespace headrace
