#include "papers/lobster/decode_limit.h"

#include <algorithm>
#include <array>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::uint32_t kDecodeThreads = 16;
constexpr std::uint64_t kBytes = 100'000;
constexpr std::uint64_t kStepSamples = 64;  // of a lane's step

DecodeLimit::Options Options() {
  DecodeLimit::Options options;
  options.budget.reads = 64;
  options.budget.decodes = kDecodeThreads;
  return options;
}

// Two lanes; a sample takes `decode_ns` on one thread, and no longer while others do the same, up
// to `knee` threads.
class World {
 public:
  World(std::int64_t decode_ns, int knee) : decode_ns_(decode_ns), knee_(knee) {
    for (LaneWork& lane : work_) {
      lane.step_samples = kStepSamples;
      lane.step_bytes = kStepSamples * kBytes;
      lane.step_reads.storage = lane.step_bytes;
      lane.read_ns_per_byte.storage = 1;
      lane.step_ns = 100'000'000;
    }
  }

  // Goes on by so many steps; how many threads then run.
  std::uint32_t Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      // Not always all of them have something to do.
      for (int task = 0; task < 16; ++task) {
        const int threads = std::max(1, static_cast<int>(now_) - task);
        const std::int64_t ns = threads <= knee_ ? decode_ns_ : decode_ns_ * threads / knee_;
        times_.OnDecoded(
            {.samples = 4, .bytes = 4 * kBytes, .threads = threads, .nanoseconds = 4 * ns});
      }
      now_ = limit_.Threads(work_);
    }
    return now_;
  }

  void set_step_ns(std::int64_t ns) {
    for (LaneWork& lane : work_) lane.step_ns = ns;
  }
  [[nodiscard]] const DecodeTimes& times() const { return times_; }

 private:
  const std::int64_t decode_ns_;
  const int knee_;
  std::array<LaneWork, 2> work_;
  std::uint32_t now_ = kDecodeThreads;
  DecodeTimes times_{/*transform=*/0, PreprocessModel()};
  DecodeLimit limit_{Options(), times_};
};

TEST(DecodeLimitTest, AllThreadsRunUntilSomethingIsKnown) {
  World world(1'000'000, kDecodeThreads);
  EXPECT_EQ(world.Run(16), kDecodeThreads);
}

// 128 samples of 1 ms in 100 ms: 2 threads would just do.
TEST(DecodeLimitTest, FewerRunWhilePreprocessingIsNotWhatEverythingWaitsFor) {
  World world(1'000'000, kDecodeThreads);
  EXPECT_EQ(world.Run(400), 2);
  // And no fewer than there are lanes.
  World light(10'000, kDecodeThreads);
  EXPECT_EQ(light.Run(400), 2);
}

// 128 ms of work in 80: of three threads one lane has one, and takes 64 ms, more than 70 %.
TEST(DecodeLimitTest, ThreadsAreNotDividedBetweenLanes) {
  World world(1'000'000, kDecodeThreads);
  world.set_step_ns(80'000'000);
  EXPECT_EQ(world.Run(400), 4);
}

TEST(DecodeLimitTest, MoreRunAgainWhenItIs) {
  World world(1'000'000, kDecodeThreads);
  ASSERT_EQ(world.Run(400), 2);
  world.set_step_ns(20'000'000);  // 128 ms of work in 20: 7 threads, and some to spare.
  const std::uint32_t more = world.Run(800);
  EXPECT_GE(more, 7);
  EXPECT_LT(more, kDecodeThreads);
  world.set_step_ns(1'000'000);
  EXPECT_EQ(world.Run(800), kDecodeThreads);
}

TEST(DecodeLimitTest, ThreadsBeyondTheKneeAreNotRun) {
  World world(10'000'000, /*knee=*/4);  // Decoding is what everything waits for, whatever it takes.
  EXPECT_LE(world.Run(800), 6);
  EXPECT_GE(world.Run(8), 4);
}

TEST(DecodeLimitTest, MovesByOneThreadAtATime) {
  World world(1'000'000, kDecodeThreads);
  std::uint32_t before = kDecodeThreads;
  for (int step = 0; step < 400; ++step) {
    const std::uint32_t now = world.Run(1);
    ASSERT_LE(now > before ? now - before : before - now, 1U);
    before = now;
  }
}

TEST(DecodeLimitTest, WhatWasLearnedGoesOn) {
  World world(1'000'000, kDecodeThreads);
  world.Run(100);
  const std::vector<PreprocessRow> rows = world.times().rows();
  ASSERT_FALSE(rows.empty());
  EXPECT_NEAR(rows.back().seconds, 0.001, 1e-6);
  const DecodeTimes next(/*transform=*/0, PreprocessModel::FromRows(rows, {}).value());
  EXPECT_EQ(next.rows(), rows);
}

}  // namespace
}  // namespace headrace
