#include "loader/ending/run_lifecycle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>

namespace headrace {
namespace {

class SetClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t NowNanos() const override { return now_ns; }
  std::int64_t now_ns = 0;
};

// A run whose reads end when the test says so.
struct FakeRun {
  bool Close(std::int64_t timeout_ns) {
    asked.release();
    if (timeout_ns < 0) released.acquire();
    return timeout_ns < 0 || reads_ended;
  }
  std::atomic<bool> reads_ended = false;
  std::counting_semaphore<> asked{0};
  std::binary_semaphore released{0};
};

class RunLifecycleTest : public ::testing::Test {
 protected:
  using Lifecycle = RunLifecycle<FakeRun>;
  static Result<int> PlanNothing() { return 0; }
  static std::shared_ptr<FakeRun> MakeRun(int /*planned*/) { return std::make_shared<FakeRun>(); }
  bool End(std::int64_t timeout_ns) { return lifecycle_.End(lifecycle_.TakeTurn(), timeout_ns); }
  std::shared_ptr<FakeRun> Begin() {
    return lifecycle_.Begin(lifecycle_.TakeTurn(), PlanNothing, MakeRun).value();
  }

  SetClock clock_;
  int closed_ = 0;
  Lifecycle lifecycle_{clock_, [this](FakeRun&) { ++closed_; }};
};

TEST_F(RunLifecycleTest, EndDoesNotWaitForARunThatIsPlannedAndThatDoesNotStart) {
  std::binary_semaphore plans(0);
  std::binary_semaphore goes_on(0);
  Status begun;
  bool started = false;
  std::jthread beginner([&] {
    begun = lifecycle_
                .Begin(
                    lifecycle_.TakeTurn(),
                    [&]() -> Result<int> {
                      plans.release();
                      goes_on.acquire();
                      return 0;
                    },
                    [&](int planned) {
                      started = true;
                      return MakeRun(planned);
                    })
                .status();
  });
  plans.acquire();
  EXPECT_FALSE(End(0));
  goes_on.release();
  beginner.join();
  EXPECT_EQ(begun.code(), StatusCode::kCancelled);
  EXPECT_FALSE(started);
  EXPECT_TRUE(End(0));
  EXPECT_EQ(closed_, 0);
  Begin()->reads_ended = true;  // The next one is not affected.
  EXPECT_TRUE(End(0));
  EXPECT_EQ(closed_, 1);
}

TEST_F(RunLifecycleTest, CancelEndsABeginThatWaitsForReadsOfTheRunBefore) {
  const std::shared_ptr<FakeRun> before = Begin();
  Status begun;
  std::jthread beginner(
      [&] { begun = lifecycle_.Begin(lifecycle_.TakeTurn(), PlanNothing, MakeRun).status(); });
  before->asked.acquire();
  lifecycle_.Cancel();
  beginner.join();
  EXPECT_EQ(begun.code(), StatusCode::kCancelled);
  EXPECT_FALSE(End(-1));
  before->released.release();
  lifecycle_.Close();
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(lifecycle_.Begin(lifecycle_.TakeTurn(), PlanNothing, MakeRun).status().code(),
            StatusCode::kCancelled);
}

TEST_F(RunLifecycleTest, ABeginThatIsOvertakenWhileItPlansDoesNotStart) {
  const auto overtaken = [&]() -> Result<int> {
    static_cast<void>(lifecycle_.TakeTurn());
    return 0;
  };
  bool started = false;
  const auto start = [&](int planned) {
    started = true;
    return MakeRun(planned);
  };
  const auto begun = lifecycle_.Begin(lifecycle_.TakeTurn(), overtaken, start);
  EXPECT_EQ(begun.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(started);
  Begin()->reads_ended = true;
  EXPECT_TRUE(End(0));
}

TEST_F(RunLifecycleTest, ABeginThatIsOvertakenBeforeItsTurnLeavesTheNewerRunAlone) {
  const RunTurn older = lifecycle_.TakeTurn();
  const std::shared_ptr<FakeRun> newer = Begin();
  const auto begun = lifecycle_.Begin(older, PlanNothing, MakeRun);
  EXPECT_EQ(begun.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(newer->asked.try_acquire());
  newer->reads_ended = true;
  EXPECT_TRUE(End(0));
}

TEST_F(RunLifecycleTest, OfTwoBeginsThatWaitForReadsTheNewerStarts) {
  const std::shared_ptr<FakeRun> before = Begin();
  Status older;
  std::jthread first(
      [&] { older = lifecycle_.Begin(lifecycle_.TakeTurn(), PlanNothing, MakeRun).status(); });
  before->asked.acquire();  // The older one waits.
  std::shared_ptr<FakeRun> run;
  std::jthread second([&] { run = Begin(); });
  first.join();
  EXPECT_EQ(older.code(), StatusCode::kCancelled);
  before->reads_ended = true;
  second.join();
  ASSERT_NE(run, nullptr);
  run->reads_ended = true;
  EXPECT_TRUE(End(0));
  EXPECT_EQ(closed_, 2);
}

TEST_F(RunLifecycleTest, EndCallsOffABeginThatWaitsForReads) {
  const std::shared_ptr<FakeRun> before = Begin();
  Status begun;
  std::jthread beginner(
      [&] { begun = lifecycle_.Begin(lifecycle_.TakeTurn(), PlanNothing, MakeRun).status(); });
  before->asked.acquire();
  EXPECT_FALSE(End(0));
  before->reads_ended = true;
  beginner.join();
  EXPECT_EQ(begun.code(), StatusCode::kCancelled);
  EXPECT_TRUE(End(0));
}

TEST_F(RunLifecycleTest, AnEndDoesNothingToARunThatBeganAfterItWasCalled) {
  const RunTurn end = lifecycle_.TakeTurn();
  const auto ends_while_planned = [&]() -> Result<int> {
    EXPECT_TRUE(lifecycle_.End(end, -1));
    return 0;
  };
  const auto begun = lifecycle_.Begin(lifecycle_.TakeTurn(), ends_while_planned, MakeRun);
  ASSERT_TRUE(begun.ok());
  EXPECT_TRUE(lifecycle_.End(end, -1));
  EXPECT_FALSE(begun.value()->asked.try_acquire());
  begun.value()->reads_ended = true;
  EXPECT_TRUE(End(0));
}

TEST_F(RunLifecycleTest, AnErrorOfThePlanIsTheErrorOfBegin) {
  const auto failing = []() -> Result<int> { return Status(StatusCode::kDataLoss, "no plan"); };
  EXPECT_EQ(lifecycle_.Begin(lifecycle_.TakeTurn(), failing, MakeRun).status().message(),
            "no plan");
  Begin()->reads_ended = true;
  EXPECT_TRUE(End(0));
}

TEST_F(RunLifecycleTest, SeveralWaitsOfOneEndingShareOneDeadline) {
  const std::shared_ptr<FakeRun> run = Begin();
  EXPECT_EQ(lifecycle_.LeftOf(1000), 1000);
  EXPECT_FALSE(End(0));
  clock_.now_ns = 300;
  EXPECT_FALSE(End(0));
  EXPECT_EQ(lifecycle_.LeftOf(1000), 700);
  clock_.now_ns = 5000;
  EXPECT_EQ(lifecycle_.LeftOf(1000), 0);
  run->reads_ended = true;
  EXPECT_TRUE(End(0));
  EXPECT_EQ(lifecycle_.LeftOf(1000), 1000);
}

TEST_F(RunLifecycleTest, AfterAPlanThatWasCalledOffNothingIsEnding) {
  const auto called_off = [&]() -> Result<int> {
    EXPECT_FALSE(End(0));
    clock_.now_ns += 300;
    EXPECT_EQ(lifecycle_.LeftOf(1000), 700);
    return 0;
  };
  EXPECT_FALSE(lifecycle_.Begin(lifecycle_.TakeTurn(), called_off, MakeRun).ok());
  EXPECT_EQ(lifecycle_.LeftOf(1000), 1000);
}

}  // namespace
}  // namespace headrace
