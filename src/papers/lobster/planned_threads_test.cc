#include "papers/lobster/planned_threads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr double kPlannedMB = 1e6;
constexpr std::uint32_t kReads = 32;
constexpr std::uint32_t kDecodes = 16;

// As many bytes a second for each user, without end.
SizedRates RateOfEach(double bytes_a_second) {
  return SizedRates::OfAnySize(
      Curve::Make({{1, bytes_a_second}, {1024, 1024 * bytes_a_second}}).value());
}

// A tier in memory, one on a disk, other nodes, storage: each slower than the one before.
PlannedThreads::Options OnMachine(double decode_rate = kUnlimited) {
  PlannedThreads::Options options{.budget = {.reads = kReads, .decodes = kDecodes}, .lanes = 2};
  MachineModel model;
  model.tiers = {{.read = RateOfEach(1000 * kPlannedMB), .write = {}},
                 {.read = RateOfEach(100 * kPlannedMB), .write = {}}};
  model.link = LinkModel{.rate = RateOfEach(20 * kPlannedMB)};
  model.storage.rate = RateOfEach(5 * kPlannedMB);
  if (decode_rate != kUnlimited) {
    model.decode = Curve::Make({{1, decode_rate}, {kDecodes, kDecodes * decode_rate}}).value();
  }
  options.model = std::move(model);
  return options;
}

std::uint32_t DecodesOf(const std::vector<LaneThreads>& threads) {
  std::uint32_t sum = 0;
  for (const LaneThreads& lane : threads) sum += lane.decode;
  return sum;
}

std::uint32_t ReadsOf(const std::vector<LaneThreads>& threads) {
  std::uint32_t sum = 0;
  for (const LaneThreads& lane : threads) sum += lane.loading;
  return sum;
}

// Lane 1's bytes are as many times as slow as lane 0's: so are its shares.
TEST(PlannedThreadsTest, EachSourceCostsWhatItsReadsTake) {
  const PlannedThreads planned(OnMachine());
  const double bytes = 10 * kPlannedMB;
  const LaneDemand memory{.samples = 8, .tier_bytes = {bytes}};
  const LaneDemand disk{.samples = 8, .tier_bytes = {0, bytes}};
  const LaneDemand peer{.samples = 8, .peer_bytes = bytes};
  const LaneDemand storage{.samples = 8, .storage_bytes = bytes};
  const auto reads = [&](const LaneDemand& first, const LaneDemand& second) {
    const auto threads = planned(std::vector{first, second});
    EXPECT_EQ(ReadsOf(threads), kReads) << "all threads decode";
    return std::pair(threads[0].loading, threads[1].loading);
  };
  EXPECT_EQ(reads(memory, disk), std::pair(3U, 29U));  // 1 to 10 of 32
  EXPECT_EQ(reads(disk, memory), std::pair(29U, 3U));
  EXPECT_EQ(reads(disk, peer), std::pair(6U, 26U));     // 1 to 5
  EXPECT_EQ(reads(peer, storage), std::pair(7U, 25U));  // 1 to 4
  EXPECT_EQ(reads(disk, disk), std::pair(16U, 16U));
}

TEST(PlannedThreadsTest, WhatWasNotMeasuredCountsAsStorage) {
  PlannedThreads::Options options = OnMachine();
  options.model->tiers.pop_back();
  options.model->link.reset();
  const PlannedThreads planned(std::move(options));
  const double bytes = 10 * kPlannedMB;
  const auto threads = planned(
      std::vector<LaneDemand>{{.samples = 8, .tier_bytes = {0, bytes / 2}, .peer_bytes = bytes / 2},
                              {.samples = 8, .storage_bytes = bytes}});
  EXPECT_EQ(threads[0].loading, threads[1].loading);
}

// Section 4.1: threads move to loading while it is late, and back where preprocessing is.
TEST(PlannedThreadsTest, ThreadsMoveBetweenLoadingAndPreprocessingStepByStep) {
  PlannedThreads::Options options = OnMachine(/*decode_rate=*/100 * kPlannedMB);
  options.train_seconds = 0.1;
  const PlannedThreads planned(std::move(options));
  const auto of = [&](const LaneDemand& each) {
    const std::vector<LaneThreads> threads = planned(std::vector{each, each});
    EXPECT_EQ(ReadsOf(threads) + DecodesOf(threads), kReads + kDecodes);
    return DecodesOf(threads);
  };
  // 8 MB a lane: 10 ms to decode with all 16 threads, and 100 ms to read from storage with the
  // other 32. Of 48 threads, 3.2 s / loading + 0.16 s / decoding is least with 8 or 9 that decode.
  const LaneDemand misses{.samples = 8, .storage_bytes = 8 * kPlannedMB};
  const LaneDemand hits{.samples = 8, .tier_bytes = {8 * kPlannedMB}};
  EXPECT_EQ(of(hits), kDecodes);
  const std::uint32_t late = of(misses);
  EXPECT_GE(late, 8U);
  EXPECT_LE(late, 9U);
  EXPECT_EQ(of(hits), kDecodes);  // And back.
}

// The curve that was learned says that more than six threads only take bandwidth from others.
TEST(PlannedThreadsTest, NoMoreThreadsPreprocessThanReachThePeak) {
  PlannedThreads::Options options = OnMachine(/*decode_rate=*/20 * kPlannedMB);
  options.transform = 7;
  options.train_seconds = 1;
  for (int threads = 1; threads <= static_cast<int>(kDecodes); ++threads) {
    options.preprocess.Observe({.transform = 7,
                                .bytes = 1'000'000,
                                .threads = threads,
                                .nanoseconds = threads <= 6 ? 1'000'000 : 1'000'000 * threads / 6});
  }
  options.preprocess.Fit();
  const std::vector<LaneDemand> demand(2, {.samples = 8, .tier_bytes = {8 * kPlannedMB}});
  EXPECT_EQ(DecodesOf(PlannedThreads(options)(demand)), 6U);
  options.transform = 8;  // Nothing is known of it: the model's rate counts.
  EXPECT_EQ(DecodesOf(PlannedThreads(options)(demand)), kDecodes);
}

TEST(PlannedThreadsTest, EachLaneKeepsADecodeThreadWhereThereAreEnough) {
  PlannedThreads::Options options = OnMachine(/*decode_rate=*/1000 * kPlannedMB);
  options.lanes = 4;
  const LaneDemand misses{.samples = 8, .storage_bytes = 8 * kPlannedMB};
  const std::vector<LaneThreads> threads = PlannedThreads(options)(std::vector(4, misses));
  for (const LaneThreads& lane : threads) EXPECT_EQ(lane.decode, 1U);
  EXPECT_EQ(ReadsOf(threads), kReads + kDecodes - 4);
  options.budget.decodes = 3;
  EXPECT_EQ(DecodesOf(PlannedThreads(options)(std::vector(4, misses))), 3U);
}

TEST(PlannedThreadsTest, WithoutAModelBytesCountAndAllDecode) {
  PlannedThreads::Options options = OnMachine();
  options.model.reset();
  const auto threads = PlannedThreads(options)(
      std::vector<LaneDemand>{{.samples = 8, .tier_bytes = {0, 30 * kPlannedMB}},
                              {.samples = 8, .storage_bytes = 10 * kPlannedMB}});
  EXPECT_EQ(threads[0], (LaneThreads{.loading = 24, .decode = 12}));
  EXPECT_EQ(threads[1], (LaneThreads{.loading = 8, .decode = 4}));
}

}  // namespace
}  // namespace headrace
