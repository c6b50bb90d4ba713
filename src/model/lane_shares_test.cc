#include "model/lane_shares.h"

#include <algorithm>
#include <functional>
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

constexpr double kLoadMB = 1e6;

Curve LoadCurve(std::vector<Curve::Point> points) { return Curve::Make(std::move(points)).value(); }

// Rates of one thread that shrink as threads are added, so that times are convex.
LoadRates Rates() {
  return {.local = {LoadCurve({{1, 2000 * kLoadMB}, {4, 6000 * kLoadMB}, {64, 9000 * kLoadMB}})},
          .remote = LoadCurve({{1, 400 * kLoadMB}, {8, 1600 * kLoadMB}, {64, 2000 * kLoadMB}}),
          .storage = LoadCurve({{1, 50 * kLoadMB}, {64, 3200 * kLoadMB}})};
}

int Total(const LaneShares& shares) { return std::accumulate(shares.begin(), shares.end(), 0); }

std::vector<LaneLoad> RandomLanes(Prng& random, std::size_t count) {
  std::vector<LaneLoad> lanes(count);
  for (LaneLoad& lane : lanes) {
    lane.requests = random.Below(64);
    lane.local_bytes[0] = random.Uniform() * 20 * kLoadMB;
    lane.remote_bytes = random.Uniform() * 20 * kLoadMB;
    lane.storage_bytes = random.Uniform() * 20 * kLoadMB;
    lane.preprocess_seconds = random.Uniform() * 0.05;
  }
  return lanes;
}

LoadRates RandomRates(Prng& random) {
  const auto curve = [&] {
    std::vector<Curve::Point> points;
    double users = 0;
    for (std::uint64_t i = 0; i < 1 + random.Below(5); ++i) {
      users += 1 + static_cast<double>(random.Below(4));
      points.push_back({users, (10 + random.Uniform() * 990) * kLoadMB});
    }
    return LoadCurve(std::move(points));
  };
  LoadRates rates;
  rates.local[0] = curve();
  rates.remote = curve();
  rates.storage = curve();
  return rates;
}

// Calls `visit` with all shares of at least 1 that are together at most `budget`.
void AllShares(std::size_t lanes, int budget, const std::function<void(const LaneShares&)>& visit) {
  LaneShares shares;
  const std::function<void(int)> next = [&](int left) {
    if (shares.size() == lanes) {
      visit(shares);
      return;
    }
    const int others = static_cast<int>(lanes - shares.size()) - 1;
    for (int n = 1; n <= left - others; ++n) {
      shares.push_back(n);
      next(left - n);
      shares.pop_back();
    }
  };
  next(budget);
}

TEST(LoadModelTest, IsEquation1) {
  const LoadRates rates = Rates();
  const LaneLoad lane{.local_bytes = {10 * kLoadMB},
                      .remote_bytes = 4 * kLoadMB,
                      .storage_bytes = 2 * kLoadMB,
                      .preprocess_seconds = 1};
  const LoadModel sum(rates, 8);
  EXPECT_DOUBLE_EQ(sum.LoadSeconds(lane, 1), 10 / 2000.0 + 4 / 400.0 + 2 / 50.0);
  EXPECT_DOUBLE_EQ(sum.LoadSeconds(lane, 8),
                   10 * kLoadMB / (8 * rates.local[0].RateEach(8)) + 4 / 1600.0 + 2 / 400.0);
  EXPECT_DOUBLE_EQ(sum.Seconds(lane, 8), sum.LoadSeconds(lane, 8) + 1);
  const LoadModel parallel(rates, 8, LoadPools::kParallel);
  EXPECT_DOUBLE_EQ(parallel.LoadSeconds(lane, 1), 2 / 50.0);
  EXPECT_DOUBLE_EQ(sum.LoadSeconds({}, 3), 0);
}

TEST(LoadModelTest, EachTierHasItsOwnTerm) {
  LoadRates rates;
  rates.local = {LoadCurve({{1, 1000 * kLoadMB}, {4, 4000 * kLoadMB}}),
                 LoadCurve({{1, 100 * kLoadMB}, {4, 200 * kLoadMB}})};
  rates.storage = LoadCurve({{1, 10 * kLoadMB}});
  const LoadModel model(rates, 4);
  const LaneLoad lane{.local_bytes = {8 * kLoadMB, 4 * kLoadMB}, .storage_bytes = 2 * kLoadMB};
  EXPECT_DOUBLE_EQ(model.LoadSeconds(lane, 1), 0.008 + 0.04 + 0.2);
  EXPECT_DOUBLE_EQ(model.LoadSeconds(lane, 4), 0.002 + 0.02 + 0.2);
  // As much in the second tier takes as long as there, not as in the first.
  EXPECT_DOUBLE_EQ(model.LoadSeconds({.local_bytes = {0, 8 * kLoadMB}}, 1), 0.08);
}

TEST(LoadModelTest, MoreThreadsNeverTakeLonger) {
  LoadRates rates;
  rates.storage = LoadCurve({{1, 50 * kLoadMB}, {4, 200 * kLoadMB}, {8, 100 * kLoadMB}});
  const LoadModel model(rates, 16);
  const LaneLoad lane{.local_bytes = {1e12}, .storage_bytes = 200 * kLoadMB};
  EXPECT_DOUBLE_EQ(model.LoadSeconds(lane, 4), 1);
  EXPECT_DOUBLE_EQ(model.LoadSeconds(lane, 16), 1);  // 4 of them read
  EXPECT_EQ(model.ThreadsFor(lane, 1, 16), 4);
  EXPECT_EQ(model.ThreadsFor(lane, 0.999, 16), 0);
  EXPECT_EQ(model.ThreadsFor(lane, 1, 3), 0);
  EXPECT_EQ(model.ThreadsFor(lane, 100, 16), 1);
}

TEST(ProportionalTest, FollowsTheWeights) {
  const auto of = [](std::vector<std::uint64_t> weights, int budget) {
    return Proportional(weights, budget);
  };
  EXPECT_THAT(of({30, 10}, 8), ElementsAre(6, 2));
  EXPECT_THAT(of({1, 1, 1}, 9), ElementsAre(3, 3, 3));
  EXPECT_THAT(of({1, 1, 1}, 10), ElementsAre(4, 3, 3));  // ties: the first lane
  EXPECT_THAT(of({0, 0}, 5), ElementsAre(3, 2));
  EXPECT_THAT(of({1000, 0, 1}, 8), ElementsAre(6, 1, 1));
  EXPECT_THAT(of({5, 3, 2}, 7), ElementsAre(4, 2, 1));  // 3.5, 2.1, 1.4
  EXPECT_THAT(of({7}, 3), ElementsAre(3));
  EXPECT_THAT(of({2, 9, 9, 1}, 3), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(of({2, 9}, 0), ElementsAre(0, 0));
  const std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_THAT(of({huge, huge, huge, huge}, 8), ElementsAre(2, 2, 2, 2));
}

TEST(ProportionalTest, SumsToTheBudgetAndStaysWithinOneThreadOfTheQuota) {
  Prng random(1, 0, RandomStream::kOrder);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::uint64_t> weights(1 + random.Below(16));
    for (auto& weight : weights) weight = random.Below(random.Below(2) == 0 ? 5 : 1000);
    const int budget = static_cast<int>(weights.size() + random.Below(100));
    const LaneShares shares = Proportional(weights, budget);
    ASSERT_EQ(Total(shares), budget);
    ASSERT_THAT(shares, Each(Ge(1)));
    const double total =
        static_cast<double>(std::accumulate(weights.begin(), weights.end(), std::uint64_t{0}));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      // Never above the rounded quota: the least of one thread is taken from the others.
      const double quota = total == 0
                               ? static_cast<double>(budget) / static_cast<double>(weights.size())
                               : static_cast<double>(weights[i]) * budget / total;
      ASSERT_LE(shares[i], std::max(1.0, quota + 1));
      for (std::size_t j = 0; j < weights.size(); ++j) {
        ASSERT_TRUE(weights[i] <= weights[j] || shares[i] >= shares[j]);
      }
    }
  }
}

TEST(MakespanSharesTest, IsTheLeastOfAllShares) {
  Prng random(2, 0, RandomStream::kOrder);
  for (int round = 0; round < 400; ++round) {
    const std::size_t lanes_count = 1 + random.Below(4);
    const int budget = static_cast<int>(lanes_count + random.Below(9));
    // Rates with knees, steps and falls; both sorts of pools.
    const LoadModel model(RandomRates(random), budget,
                          random.Below(2) == 0 ? LoadPools::kShared : LoadPools::kParallel);
    const std::vector<LaneLoad> lanes = RandomLanes(random, lanes_count);
    double least = 1e9;
    int threads_least = 1 << 20;
    AllShares(lanes_count, budget, [&](const LaneShares& shares) {
      const double makespan = Makespan(lanes, model, shares);
      if (makespan < least) threads_least = 1 << 20;
      least = std::min(least, makespan);
      if (makespan == least) threads_least = std::min(threads_least, Total(shares));
    });
    LaneShares found = MakespanShares(lanes, model, budget);
    ASSERT_THAT(found, Each(Ge(1)));
    ASSERT_EQ(Makespan(lanes, model, found), least) << "round " << round;
    ASSERT_EQ(Total(found), threads_least) << "round " << round;
    SpreadSpare(lanes, model, budget, found);
    ASSERT_LE(Total(found), budget);
    ASSERT_EQ(Makespan(lanes, model, found), least);
  }
}

TEST(MakespanSharesTest, NoThreadGoesBeyondWhatIsEnough) {
  const LoadModel model(Rates(), 32);
  const std::vector<LaneLoad> lanes(4, LaneLoad{.requests = 8, .storage_bytes = 10 * kLoadMB});
  EXPECT_THAT(MakespanShares(lanes, model, 32), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(MakespanShares(lanes, model, 32, 0.1), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(MakespanShares(lanes, model, 32, 10), ElementsAre(1, 1, 1, 1));
}

TEST(MakespanSharesTest, LanesWithoutWorkKeepOneThread) {
  const LoadModel model(Rates(), 16);
  const std::vector<LaneLoad> lanes = {{}, {.requests = 1, .storage_bytes = kLoadMB}, {}};
  EXPECT_THAT(MakespanShares(lanes, model, 16), ElementsAre(1, 14, 1));
  const std::vector<LaneLoad> nothing(3);
  EXPECT_THAT(MakespanShares(nothing, model, 16), ElementsAre(1, 1, 1));
}

// 50 MB/s for each thread.
LoadModel StorageAlone(int threads_max) {
  LoadRates rates;
  rates.storage = Rates().storage;
  return LoadModel(rates, threads_max);
}

// The end of algorithm 1: equation 2 for each lane alone.
TEST(BinarySearchSharesTest, NoNumberOfThreadsBringsALaneCloserToTraining) {
  Prng random(4, 0, RandomStream::kOrder);
  int beyond = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t lanes_count = 1 + random.Below(8);
    const int budget = static_cast<int>(lanes_count + random.Below(40));
    const LoadModel model(RandomRates(random), budget);
    const std::vector<LaneLoad> lanes = RandomLanes(random, lanes_count);
    const double train = random.Uniform() * 0.2;
    const double tau = 1e-9 + random.Uniform() * train / 10;
    const LaneShares shares = BinarySearchShares(lanes, model, budget, train, tau);
    beyond += Total(shares) > budget ? 1 : 0;
    for (std::size_t lane = 0; lane < lanes_count; ++lane) {
      const double difference = std::abs(train - model.Seconds(lanes[lane], shares[lane]));
      if (difference < tau) continue;
      for (int threads = 1; threads <= budget; ++threads) {
        ASSERT_LE(difference, std::abs(train - model.Seconds(lanes[lane], threads)))
            << "round " << round << ", lane " << lane << ", " << threads << " threads";
      }
    }
  }
  EXPECT_GT(beyond, 200);  // Nothing holds it to the budget ...
  EXPECT_LT(beyond, 1800);
}

TEST(BinarySearchSharesTest, BringsEachLaneCloseToTraining) {
  const LoadModel model = StorageAlone(64);
  std::vector<LaneLoad> lanes(3, LaneLoad{.requests = 1});
  lanes[0].storage_bytes = 25 * kLoadMB;
  lanes[1].storage_bytes = 50 * kLoadMB;
  lanes[2].storage_bytes = 2 * kLoadMB;
  // 0.1 s: 5, 10 and 0.4 threads. More would not help: the exact shares are the same.
  EXPECT_THAT(BinarySearchShares(lanes, model, 64, 0.1, 0.001), ElementsAre(5, 10, 1));
  EXPECT_THAT(MakespanShares(lanes, model, 64, 0.1), ElementsAre(5, 10, 1));
  // The first shares are within the tolerance: they stay (the entry case).
  EXPECT_THAT(BinarySearchShares(lanes, model, 9, 0.1, 100), ElementsAre(3, 3, 3));
}

TEST(BinarySearchSharesTest, MoreThreadsThanThereAreTakeTurns) {
  const LoadModel model = StorageAlone(9);
  std::vector<LaneLoad> lanes(3, LaneLoad{.requests = 1});
  lanes[0].storage_bytes = 25 * kLoadMB;
  lanes[1].storage_bytes = 50 * kLoadMB;
  lanes[2].storage_bytes = 2 * kLoadMB;
  // Each lane alone may have all nine: 5, of 10 those nine, 1.
  const LaneShares searched = BinarySearchShares(lanes, model, 9, 0.1, 0.001);
  EXPECT_THAT(searched, ElementsAre(5, 9, 1));
  // A part of 9 / 15 each, at least one; here it is the best that there is, too.
  EXPECT_THAT(FitShares(searched, 9), ElementsAre(3, 5, 1));
  EXPECT_THAT(MakespanShares(lanes, model, 9), ElementsAre(3, 5, 1));
  EXPECT_THAT(FitShares({3, 2, 1}, 9), ElementsAre(3, 2, 1));
}

// Where the paper's result is not the best.
TEST(BinarySearchSharesTest, ALaneThatPreprocessesLongCostsTheOthers) {
  const LoadModel model = StorageAlone(8);
  // 0.1 s of training: lane 0 has half of it left to load 5 MB, with two threads; lane 1 could do
  // with ten of the eight.
  const std::vector<LaneLoad> lanes = {
      {.requests = 1, .storage_bytes = 5 * kLoadMB, .preprocess_seconds = 0.05},
      {.requests = 1, .storage_bytes = 50 * kLoadMB}};
  const LaneShares searched = BinarySearchShares(lanes, model, 8, 0.1, 0.001);
  EXPECT_THAT(searched, ElementsAre(2, 8));
  const LaneShares fitted = FitShares(searched, 8);
  EXPECT_THAT(fitted, ElementsAre(2, 6));
  EXPECT_DOUBLE_EQ(Makespan(lanes, model, fitted), 50.0 / 300);
  // Lane 0 is late anyway: with one thread fewer it is no later than lane 1 has to be.
  const LaneShares exact = MakespanShares(lanes, model, 8);
  EXPECT_THAT(exact, ElementsAre(1, 7));
  EXPECT_DOUBLE_EQ(Makespan(lanes, model, exact), 0.15);
}

// Lanes that are ahead of training get fewer threads than there are: equation 2 asks for no more.
TEST(BinarySearchSharesTest, SlowsDownLanesThatAreAheadOfTraining) {
  const LoadModel model = StorageAlone(16);
  const std::vector<LaneLoad> lanes = {{.requests = 1, .storage_bytes = 10 * kLoadMB},
                                       {.requests = 1, .storage_bytes = 40 * kLoadMB}};
  const LobsterOptions paper{.train_seconds = 0.2, .search = LobsterOptions::Search::kBinarySearch};
  EXPECT_THAT(LobsterShares(lanes, model, 16, paper).shares, ElementsAre(1, 4));
  EXPECT_THAT(LobsterShares(lanes, model, 16, {.train_seconds = 0.2}).shares, ElementsAre(4, 12));
  // Without T_train equation 2 says nothing.
  const LobsterOptions unknown{.search = LobsterOptions::Search::kBinarySearch};
  const LobsterDecision decision = LobsterShares(lanes, model, 16, unknown);
  EXPECT_TRUE(decision.straggler);
  EXPECT_THAT(decision.shares, ElementsAre(8, 8));
}

TEST(LobsterSharesTest, IsProportionalWithoutAStraggler) {
  const LoadModel model(Rates(), 16);
  std::vector<LaneLoad> lanes(4, LaneLoad{.requests = 10, .storage_bytes = kLoadMB});
  lanes[2].requests = 30;
  const LobsterOptions options{.train_seconds = 1};
  const LobsterDecision decision = LobsterShares(lanes, model, 12, options);
  EXPECT_FALSE(decision.straggler);
  EXPECT_THAT(decision.shares, ElementsAre(2, 2, 6, 2));
  EXPECT_EQ(decision.shares, ProportionalShares(lanes, 12));
}

TEST(LobsterSharesTest, AStragglerGetsThreadsOfTheOthers) {
  const LoadModel model(Rates(), 16);
  // Equal queues, but one of them comes from storage.
  std::vector<LaneLoad> lanes(4, LaneLoad{.requests = 10, .local_bytes = {20 * kLoadMB}});
  lanes[1] = {.requests = 10, .storage_bytes = 20 * kLoadMB};
  for (const auto search :
       {LobsterOptions::Search::kMakespan, LobsterOptions::Search::kBinarySearch}) {
    const LobsterOptions options{.train_seconds = 0.03, .search = search};
    const LobsterDecision decision = LobsterShares(lanes, model, 16, options);
    EXPECT_TRUE(decision.straggler);
    EXPECT_GT(decision.shares[1], 10);
    EXPECT_LT(Makespan(lanes, model, decision.shares), 0.04);  // 0.1 proportionally
  }
  EXPECT_DOUBLE_EQ(Makespan(lanes, model, {4, 4, 4, 4}), 0.1);
}

TEST(LobsterSharesTest, ExactSharesDoNoHarm) {
  Prng random(5, 0, RandomStream::kOrder);
  int stragglers = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::size_t lanes_count = 1 + random.Below(8);
    const int budget = static_cast<int>(lanes_count + random.Below(40));
    const LoadModel model(RandomRates(random), budget);
    const std::vector<LaneLoad> lanes = RandomLanes(random, lanes_count);
    const double proportional = Makespan(lanes, model, ProportionalShares(lanes, budget));
    const double fixed =
        Makespan(lanes, model, Proportional(std::vector<std::uint64_t>(lanes_count, 1), budget));
    LobsterOptions options{.train_seconds = random.Uniform() * 0.2};
    const LobsterDecision exact = LobsterShares(lanes, model, budget, options);
    ASSERT_LE(Makespan(lanes, model, exact.shares), proportional);
    ASSERT_TRUE(!exact.straggler || Makespan(lanes, model, exact.shares) <= fixed);
    stragglers += exact.straggler ? 1 : 0;
    options.search = LobsterOptions::Search::kBinarySearch;
    const LobsterDecision searched = LobsterShares(lanes, model, budget, options);
    ASSERT_EQ(exact.straggler, searched.straggler);
    for (const auto* decision : {&exact, &searched}) {
      ASSERT_LE(Total(decision->shares), budget);
      ASSERT_THAT(decision->shares, Each(Ge(1)));
    }
  }
  EXPECT_GT(stragglers, 200);
  EXPECT_LT(stragglers, 1990);
}

TEST(IsImbalancedTest, ComparesTheGapWithTraining) {
  const std::vector<double> seconds = {1.0, 1.25, 1.5};
  EXPECT_TRUE(IsImbalanced(seconds, 4, 0.1));
  EXPECT_FALSE(IsImbalanced(seconds, 5, 0.1));  // just that
  EXPECT_FALSE(IsImbalanced({}, 5, 0.1));
  EXPECT_FALSE(IsImbalanced(std::vector<double>{7}, 0, 0));
}

TEST(LaneSharesTest, LanesWithNothingToDoGetNothingMore) {
  const LoadModel model({}, 8);
  const std::vector<LaneLoad> lanes(3);
  LaneShares shares = {1, 2, 1};
  SpreadSpare(lanes, model, 8, shares);
  EXPECT_EQ(shares, (LaneShares{1, 2, 1}));
}

}  // namespace
}  // namespace headrace
