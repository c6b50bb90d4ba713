#include "model/thread_split.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::Each;
using ::testing::Ge;

constexpr double kSplitMB = 1e6;

// 10 ms a sample, at its best with 6 threads.
PreprocessCurve Preprocess() {
  const std::vector<PreprocessCurve::Point> points = {
      {1, 0.010}, {2, 0.010}, {4, 0.010}, {6, 0.010}, {9, 0.015}, {12, 0.020}, {18, 0.030}};
  return PreprocessCurve(points);
}

// 50 MB/s for each thread.
LoadModel StorageForThreads(int threads_max) {
  LoadRates rates;
  rates.storage = Curve::Make({{1, 50 * kSplitMB}, {64, 3200 * kSplitMB}}).value();
  return LoadModel(rates, threads_max);
}

struct Node {
  std::vector<LaneLoad> lanes;
  std::vector<std::uint64_t> samples;
  LoadModel load = StorageForThreads(64);
  PreprocessCurve preprocess = Preprocess();

  ThreadSplit Split(int threads, double train_seconds) const {
    return SplitLoadAndDecode({.lanes = lanes,
                               .samples = samples,
                               .load = &load,
                               .preprocess = &preprocess,
                               .threads = threads,
                               .train_seconds = train_seconds});
  }
};

Node TwoLanes(double storage_bytes, std::uint64_t samples) {
  return {.lanes = std::vector<LaneLoad>(2, {.requests = 1, .storage_bytes = storage_bytes}),
          .samples = {samples, samples}};
}

TEST(SplitLoadAndDecodeTest, NoMoreDecodeThanCan) {
  Node node = TwoLanes(kSplitMB, 10);
  const auto split = [&](int decode_max) {
    return SplitLoadAndDecode({.lanes = node.lanes,
                               .samples = node.samples,
                               .load = &node.load,
                               .preprocess = &node.preprocess,
                               .threads = 16,
                               .decode_max = decode_max,
                               .train_seconds = 1});
  };
  EXPECT_EQ(split(4).decode, 4);
  EXPECT_EQ(split(4).loading, 12);
  EXPECT_EQ(split(8).decode, 6);
}

TEST(SplitLoadAndDecodeTest, StartsFromThePeakAndLeavesTheRestToLoading) {
  const ThreadSplit split = TwoLanes(kSplitMB, 10).Split(16, /*train_seconds=*/1);
  EXPECT_EQ(split.decode, 6);
  EXPECT_EQ(split.loading, 10);
  EXPECT_NEAR(split.preprocess_seconds, 20 * 0.010 / 6, 1e-4);
  EXPECT_NEAR(split.load_seconds, 1.0 / 250, 1e-9);
}

TEST(SplitLoadAndDecodeTest, LoadingThatIsLateGetsThreadsOfDecode) {
  // 100 MB a lane: 0.4 s with 5 threads each and 0.033 s of preprocessing with 6. Removing a fifth
  // decode thread helps neither of two equal lanes; removing a fourth does: 0.333 s and 0.05 s.
  const Node node = TwoLanes(100 * kSplitMB, 10);
  const ThreadSplit split = node.Split(16, /*train_seconds=*/0.39);
  EXPECT_EQ(split.decode, 4);
  EXPECT_EQ(split.loading, 12);
  EXPECT_THAT(split.loading_of_lane, ::testing::ElementsAre(6, 6));
  // Out of reach: as near as possible. With 2, it would be 0.286 s and 0.1 s.
  EXPECT_EQ(node.Split(16, /*train_seconds=*/0.3).decode, 4);
}

TEST(SplitLoadAndDecodeTest, PreprocessingDoesNotBecomeTheBottleneck) {
  // 0.05 s of loading with 5 each; 100 samples take 0.167 s with 6 threads: every thread counts.
  const ThreadSplit split = TwoLanes(12.5 * kSplitMB, 50).Split(16, /*train_seconds=*/0.17);
  EXPECT_EQ(split.decode, 6);
}

TEST(SplitLoadAndDecodeTest, EachLaneKeepsALoadingThread) {
  const ThreadSplit split = TwoLanes(kSplitMB, 1000).Split(3, 0.001);
  EXPECT_EQ(split.decode, 1);
  EXPECT_EQ(split.loading, 2);
  EXPECT_THAT(split.loading_of_lane, ::testing::ElementsAre(1, 1));
  EXPECT_THAT(split.decode_of_lane, ::testing::ElementsAre(1, 0));
}

TEST(SplitLoadAndDecodeTest, GivesOutAllThreadsAndNeverTakesLongerThanThePeak) {
  Prng random(6, 0, RandomStream::kOrder);
  for (int round = 0; round < 500; ++round) {
    Node node;
    for (std::uint64_t lane = 0; lane < 1 + random.Below(8); ++lane) {
      node.lanes.push_back(
          {.requests = random.Below(64), .storage_bytes = random.Uniform() * 50 * kSplitMB});
      node.samples.push_back(random.Below(64));
    }
    const int lanes = static_cast<int>(node.lanes.size());
    const int threads = lanes + 1 + static_cast<int>(random.Below(40));
    const ThreadSplit split = node.Split(threads, random.Uniform() * 0.5);
    ASSERT_EQ(split.loading + split.decode, threads);
    ASSERT_THAT(split.loading_of_lane, Each(Ge(1)));
    const auto total = [](const LaneShares& shares) {
      return std::accumulate(shares.begin(), shares.end(), 0);
    };
    ASSERT_EQ(total(split.loading_of_lane), split.loading);
    ASSERT_EQ(total(split.decode_of_lane), split.decode);
    ASSERT_DOUBLE_EQ(Makespan(node.lanes, node.load, split.loading_of_lane), split.load_seconds);
    const ThreadSplit peak = node.Split(threads, 1e9);
    ASSERT_LE(split.decode, peak.decode);
    ASSERT_LE(split.load_seconds + split.preprocess_seconds,
              peak.load_seconds + peak.preprocess_seconds);
  }
}

}  // namespace
}  // namespace headrace
