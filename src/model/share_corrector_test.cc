#include "model/share_corrector.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

constexpr double kStorageMB = 1e6;

LoadModel Storage() {
  LoadRates rates;
  rates.storage = Curve::Make({{1, 50 * kStorageMB}, {64, 3200 * kStorageMB}}).value();
  return LoadModel(rates, 64);
}

// The load times of lanes whose storage is `slower` times slower than in the model.
std::vector<double> Measured(const std::vector<LaneLoad>& lanes, const LaneShares& shares,
                             const std::vector<double>& slower) {
  const LoadModel model = Storage();
  std::vector<double> seconds;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    seconds.push_back(model.LoadSeconds(lanes[lane], shares[lane]) * slower[lane]);
  }
  return seconds;
}

const std::vector<LaneLoad> kEqual(4, LaneLoad{.requests = 8, .storage_bytes = 10 * kStorageMB});

TEST(ShareCorrectorTest, LooksOnceAPeriod) {
  ShareCorrector corrector({.period = 3, .moves_max = 1}, Storage(), {4, 4, 4, 4});
  const std::vector<double> slower = {1, 1, 6, 1};
  for (int step = 1; step <= 9; ++step) {
    const LaneShares before = corrector.shares();
    const bool changed = corrector.Observe(kEqual, Measured(kEqual, corrector.shares(), slower));
    EXPECT_EQ(changed, step % 3 == 0) << "step " << step;
    EXPECT_EQ(changed, corrector.shares() != before);
  }
  EXPECT_EQ(corrector.corrections(), 3U);
  EXPECT_EQ(corrector.shares()[2], 7);
}

TEST(ShareCorrectorTest, MovesThreadsToALaneThatIsSlowerThanPlannedAndBack) {
  ShareCorrector corrector({.period = 1}, Storage(), {4, 4, 4, 4});
  std::vector<double> slower = {1, 1, 3, 1};
  for (int step = 0; step < 20; ++step) {
    const LaneShares before = corrector.shares();
    corrector.Observe(kEqual, Measured(kEqual, before, slower));
    int moved = 0;
    for (std::size_t lane = 0; lane < 4; ++lane) {
      moved += std::abs(corrector.shares()[lane] - before[lane]);
    }
    EXPECT_LE(moved, 4);  // two threads, each counted where it leaves and where it arrives
  }
  EXPECT_THAT(corrector.shares(), ElementsAre(3, 3, 7, 3));
  slower[2] = 1;
  for (int step = 0; step < 20; ++step) {
    corrector.Observe(kEqual, Measured(kEqual, corrector.shares(), slower));
  }
  EXPECT_THAT(corrector.shares(), ElementsAre(4, 4, 4, 4));
}

TEST(ShareCorrectorTest, NoiseMovesNothing) {
  ShareCorrector corrector({.period = 4, .gain_min = 0.05}, Storage(), {4, 4, 4, 4});
  Prng random(1, 0, RandomStream::kOrder);
  for (int step = 0; step < 4000; ++step) {
    std::vector<double> slower;
    for (int lane = 0; lane < 4; ++lane) slower.push_back(0.95 + 0.1 * random.Uniform());
    EXPECT_FALSE(corrector.Observe(kEqual, Measured(kEqual, corrector.shares(), slower)));
  }
  EXPECT_THAT(corrector.shares(), ElementsAre(4, 4, 4, 4));
}

TEST(ShareCorrectorTest, AGainBelowTheThresholdIsNotWorthAMove) {
  // 4, 4 -> 5, 3 gains 12 %: 100/4 against 100/5 and 66/3.
  std::vector<LaneLoad> lanes = {{.storage_bytes = 100 * kStorageMB},
                                 {.storage_bytes = 66 * kStorageMB}};
  const std::vector<double> unknown(2, 0);
  ShareCorrector strict({.period = 1, .gain_min = 0.13}, Storage(), {4, 4});
  EXPECT_FALSE(strict.Observe(lanes, unknown));
  ShareCorrector lenient({.period = 1, .gain_min = 0.11}, Storage(), {4, 4});
  EXPECT_TRUE(lenient.Observe(lanes, unknown));
  EXPECT_THAT(lenient.shares(), ElementsAre(5, 3));
}

TEST(ShareCorrectorTest, OneWildMeasurementIsBounded) {
  ShareCorrector corrector({.period = 1, .moves_max = 64, .scale_max = 2}, Storage(), {4, 4, 4, 4});
  corrector.Observe(kEqual, std::vector<double>{1e9, 0, 0, 0});
  // As if lane 0 had twice its bytes, no more: 16 threads in parts of 2 : 1 : 1 : 1.
  EXPECT_THAT(corrector.shares(), ElementsAre(7, 3, 3, 3));
}

TEST(ShareCorrectorTest, KeepsTheBudgetAndNeverPredictsHarm) {
  Prng random(2, 0, RandomStream::kOrder);
  const LoadModel model = Storage();
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random.Below(8);
    LaneShares start(count);
    for (int& share : start) share = 1 + static_cast<int>(random.Below(7));
    const int budget = std::accumulate(start.begin(), start.end(), 0);
    ShareCorrector corrector({.period = 1}, Storage(), start);
    ShareCorrector same({.period = 1}, Storage(), start);
    const std::vector<double> unknown(count, 0);
    for (int step = 0; step < 20; ++step) {
      std::vector<LaneLoad> lanes(count);
      for (LaneLoad& lane : lanes) lane.storage_bytes = random.Uniform() * 50 * kStorageMB;
      const double before = Makespan(lanes, model, corrector.shares());
      corrector.Observe(lanes, unknown);
      ASSERT_LE(Makespan(lanes, model, corrector.shares()), before * (1 + 1e-12));
      ASSERT_EQ(std::accumulate(corrector.shares().begin(), corrector.shares().end(), 0), budget);
      ASSERT_THAT(corrector.shares(), Each(Ge(1)));
      same.Observe(lanes, unknown);
      ASSERT_EQ(same.shares(), corrector.shares());
    }
  }
}

}  // namespace
}  // namespace headrace
