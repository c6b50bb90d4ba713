#include "observe/step_times.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

StepTime StepOf(std::uint32_t lane, std::uint64_t step) { return {.step = step, .lane = lane}; }

TEST(StepRecorderTest, KeepsTheNewestOfEachLaneInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x5e7);
    const auto lanes = 1 + static_cast<std::uint32_t>(random.Below(4));
    const std::size_t capacity = 1 + random.Below(9);
    StepRecorder recorder(lanes, capacity);
    std::vector<std::deque<std::uint64_t>> model(lanes);
    const std::uint64_t steps = random.Below(60);
    for (std::uint64_t i = 0; i < steps; ++i) {
      const auto lane = static_cast<std::uint32_t>(random.Below(lanes));
      recorder.Add(StepOf(lane, i));
      model[lane].push_back(i);
      if (model[lane].size() > capacity) model[lane].pop_front();
    }
    std::vector<std::pair<std::uint32_t, std::uint64_t>> expected;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (const std::uint64_t step : model[lane]) expected.emplace_back(lane, step);
    }
    std::vector<std::pair<std::uint32_t, std::uint64_t>> recorded;
    for (const StepTime& step : recorder.steps()) recorded.emplace_back(step.lane, step.step);
    EXPECT_EQ(recorded, expected);
  }
}

// The least value that so many percent of all do not exceed, tried one after the other.
std::int64_t SlowPercentile(const std::vector<std::int64_t>& values, std::size_t percent) {
  std::optional<std::int64_t> least;
  for (const std::int64_t value : values) {
    std::size_t below = 0;
    for (const std::int64_t other : values) below += other <= value ? 1 : 0;
    if (below * 100 < percent * values.size()) continue;
    if (!least.has_value() || value < *least) least = value;
  }
  return *least;
}

TEST(PercentilesTest, AreThoseOfTheDefinition) {
  EXPECT_EQ(PercentilesOf({}).count, 0U);
  EXPECT_EQ(PercentilesOf({}).p99_ns, 0);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x9e4c);
    std::vector<std::int64_t> values(1 + random.Below(250));
    for (std::int64_t& value : values) value = static_cast<std::int64_t>(random.Below(300));
    const Percentiles percentiles = PercentilesOf(values);
    EXPECT_EQ(percentiles.count, values.size());
    EXPECT_EQ(percentiles.p50_ns, SlowPercentile(values, 50));
    EXPECT_EQ(percentiles.p95_ns, SlowPercentile(values, 95));
    EXPECT_EQ(percentiles.p99_ns, SlowPercentile(values, 99));
  }
}

// Ranks that train in step, with a seed's delays; some leave, and runs begin anew.
std::vector<StepTime> TrainInStep(Prng& random, std::uint32_t lanes, std::size_t capacity) {
  StepRecorder recorder(lanes, capacity);
  std::int64_t now_ns = 1'000'000;
  const std::uint64_t runs = 1 + random.Below(3);
  for (std::uint64_t run = 1; run <= runs; ++run) {
    std::vector<bool> left(lanes, false);
    const std::uint64_t steps_per_epoch = 1 + random.Below(9);
    const std::uint64_t first = random.Below(steps_per_epoch);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::uint64_t at = first + i;
      std::int64_t next_ns = now_ns;
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        if (random.Below(100) == 0) left[lane] = true;
        if (left[lane]) continue;
        StepTime step{
            .run = run, .epoch = at / steps_per_epoch, .step = at % steps_per_epoch, .lane = lane};
        step.stall_ns[random.Below(kStallCauses)] = static_cast<std::int64_t>(random.Below(50));
        step.taken_ns = now_ns + step.waited_ns();
        step.done_ns = step.taken_ns - static_cast<std::int64_t>(random.Below(400));
        step.busy_ns = static_cast<std::int64_t>(random.Below(60));
        recorder.Add(step);
        next_ns = std::max(next_ns, step.taken_ns);
      }
      now_ns = next_ns + 100 + static_cast<std::int64_t>(random.Below(200));
    }
  }
  return recorder.steps();
}

using Place = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

// Every pair of iterations that all lanes have, one right after the other in the order of places.
Imbalance SlowImbalance(const std::vector<StepTime>& steps, std::uint32_t lanes) {
  std::map<Place, std::map<std::uint32_t, StepTime>> all;
  for (const StepTime& step : steps) {
    all[{step.run, step.epoch, step.step}].emplace(step.lane, step);
  }
  Imbalance counts;
  for (auto at = all.begin(); lanes > 1 && at != all.end() && std::next(at) != all.end(); ++at) {
    const auto& [before_place, before] = *at;
    const auto& [place, now] = *std::next(at);
    if (std::get<0>(before_place) != std::get<0>(place)) continue;
    if (before.size() != lanes || now.size() != lanes) continue;
    std::int64_t began = 0;
    std::int64_t step_ns = std::int64_t{1} << 60;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      began = std::max(began, before.at(lane).taken_ns);
      step_ns = std::min(
          step_ns, now.at(lane).taken_ns - before.at(lane).taken_ns - now.at(lane).waited_ns());
    }
    std::int64_t late = 0;
    std::int64_t busy = 0;
    for (const auto& [a, step_a] : now) {
      for (const auto& [b, step_b] : now) {
        late = std::max(late, std::max<std::int64_t>(0, step_a.done_ns - began) -
                                  std::max<std::int64_t>(0, step_b.done_ns - began));
        busy = std::max(busy, step_a.busy_ns - step_b.busy_ns);
      }
    }
    ++counts.iterations;
    for (std::size_t i = 0; i < kImbalanceThetas.size(); ++i) {
      const double most = kImbalanceThetas[i] * static_cast<double>(step_ns);
      counts.late[i] += static_cast<double>(late) > most ? 1 : 0;
      counts.busy[i] += static_cast<double>(busy) > most ? 1 : 0;
    }
  }
  for (std::size_t i = 0; counts.iterations > 0 && i < kImbalanceThetas.size(); ++i) {
    counts.late[i] /= static_cast<double>(counts.iterations);
    counts.busy[i] /= static_cast<double>(counts.iterations);
  }
  return counts;
}

TEST(ImbalanceTest, IsThatOfTheSlowModel) {
  double late = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x1b1);
    const auto lanes = 1 + static_cast<std::uint32_t>(random.Below(5));
    const std::size_t capacity = random.Below(2) == 0 ? 13 : 100;
    const std::vector<StepTime> steps = TrainInStep(random, lanes, capacity);
    const Imbalance slow = SlowImbalance(steps, lanes);
    const Imbalance fast = ImbalanceOf(steps, lanes);
    EXPECT_EQ(fast.iterations, slow.iterations);
    for (std::size_t i = 0; i < kImbalanceThetas.size(); ++i) {
      EXPECT_DOUBLE_EQ(fast.late[i], slow.late[i]);
      EXPECT_DOUBLE_EQ(fast.busy[i], slow.busy[i]);
    }
    late += slow.late[1];
  }
  EXPECT_GT(late, 30);  // The model is not trivially zero.
  EXPECT_LT(late, 270);
}

// By hand: steps of 100 ns; in the second iteration lane 1 is done 15 ns after the first was taken.
TEST(ImbalanceTest, CountsAnIterationWhereOneRankIsLateByMoreThanTheta) {
  std::vector<StepTime> steps;
  for (std::uint32_t lane = 0; lane < 2; ++lane) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto began_ns = static_cast<std::int64_t>(1000 + 100 * step);
      const std::int64_t done_ns = began_ns - 100 + (lane == 1 && step == 1 ? 15 : 0);
      steps.push_back({.step = step, .lane = lane, .done_ns = done_ns, .taken_ns = began_ns});
    }
  }
  const Imbalance counts = ImbalanceOf(steps, 2);
  EXPECT_EQ(counts.iterations, 2U);
  EXPECT_EQ(counts.late, (std::array<double, 3>{0.5, 0.5, 0.0}));
  EXPECT_EQ(counts.busy, (std::array<double, 3>{0.0, 0.0, 0.0}));
}

TEST(LaneFiguresTest, AreOfStepsThatFollowOneAnotherInARun) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0xf19);
    const auto lanes = 1 + static_cast<std::uint32_t>(random.Below(5));
    const std::vector<StepTime> steps = TrainInStep(random, lanes, 100);
    const std::vector<LaneFigures> figures = FiguresOf(steps, lanes);
    ASSERT_EQ(figures.size(), lanes);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::map<std::uint64_t, std::vector<StepTime>> runs;
      for (const StepTime& step : steps) {
        if (step.lane == lane) runs[step.run].push_back(step);
      }
      std::vector<std::int64_t> step_ns;
      std::vector<std::int64_t> wait_ns;
      std::int64_t spanned_ns = 0;
      std::array<std::int64_t, kStallCauses> stall_ns{};
      for (const auto& [run, taken] : runs) {
        spanned_ns += taken.back().taken_ns - taken.front().taken_ns;
        for (std::size_t i = 1; i < taken.size(); ++i) {
          step_ns.push_back(taken[i].taken_ns - taken[i - 1].taken_ns);
          wait_ns.push_back(taken[i].waited_ns());
          for (std::size_t j = 0; j < kStallCauses; ++j) stall_ns[j] += taken[i].stall_ns[j];
        }
      }
      EXPECT_EQ(figures[lane].spanned_ns, spanned_ns);
      EXPECT_EQ(figures[lane].stall_ns, stall_ns);
      EXPECT_EQ(figures[lane].step.count, step_ns.size());
      EXPECT_EQ(figures[lane].step.p95_ns, PercentilesOf(step_ns).p95_ns);
      EXPECT_EQ(figures[lane].wait.p99_ns, PercentilesOf(wait_ns).p99_ns);
    }
  }
}

}  // namespace
}  // namespace headrace
