#include "loader/machine/thread_executor.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "base/testing/sanitized.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(ThreadExecutorTest, RunsTheEarliestDeadlineFirstAndEqualOnesInOrder) {
  std::vector<int> ran;
  std::latch started(1);
  std::latch go(1);
  {
    const auto made = ThreadExecutor::Make({.threads = 1, .name = "test"});
    ThreadExecutor& executor = *made.value();
    executor.Submit(0, [&] {
      started.count_down();
      go.wait();
    });
    started.wait();
    executor.Submit(5, [&] { ran.push_back(50); });
    executor.Submit(2, [&] { ran.push_back(20); });
    executor.Submit(2, [&] { ran.push_back(21); });
    executor.Submit(1, [&] { ran.push_back(10); });
    go.count_down();
  }
  EXPECT_EQ(ran, (std::vector<int>{10, 20, 21, 50}));
}

TEST(ThreadExecutorTest, WhoHelpsRunsNoLongTask) {
  std::latch go(1);
  std::thread::id ran_on;
  bool helped = false;
  {
    const auto made = ThreadExecutor::Make({.threads = 1, .name = "test"});
    ThreadExecutor& executor = *made.value();
    std::latch started(1);
    executor.Submit(0, [&] {
      started.count_down();
      go.wait();
    });
    started.wait();
    executor.SubmitLong([&] { ran_on = std::this_thread::get_id(); });
    EXPECT_FALSE(executor.RunOne());
    executor.Submit(7, [&] { helped = true; });
    EXPECT_TRUE(executor.RunOne());
    EXPECT_TRUE(helped);
    go.count_down();
  }
  EXPECT_NE(ran_on, std::thread::id());
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(ThreadExecutorTest, LongTasksRunBeforeTheOthers) {
  std::vector<int> ran;
  std::latch started(1);
  std::latch go(1);
  {
    const auto made = ThreadExecutor::Make({.threads = 1, .name = "test"});
    ThreadExecutor& executor = *made.value();
    executor.Submit(0, [&] {
      started.count_down();
      go.wait();
    });
    started.wait();
    executor.Submit(1, [&] { ran.push_back(1); });
    executor.SubmitLong([&] { ran.push_back(0); });
    go.count_down();
  }
  EXPECT_EQ(ran, (std::vector<int>{0, 1}));
}

TEST(ThreadExecutorTest, TheDestructorRunsWhatWasSubmittedFromInsideTasksToo) {
  std::atomic<int> ran = 0;
  {
    const auto made = ThreadExecutor::Make({.threads = 3, .name = "test"});
    ThreadExecutor& executor = *made.value();
    for (int i = 0; i < 100; ++i) {
      executor.Submit(1, [&] {
        ++ran;
        executor.Submit(2, [&] { ++ran; });
      });
    }
  }
  EXPECT_EQ(ran, 200);
}

TEST(ThreadExecutorTest, HasAsManyThreadsAsAskedFor) {
  std::latch together(3);  // Passed only if three tasks run at once; outlives their look at it.
  const auto made = ThreadExecutor::Make({.threads = 3, .name = "test"});
  ThreadExecutor& executor = *made.value();
  EXPECT_EQ(executor.concurrency(), 3);
  for (int i = 0; i < 3; ++i) executor.Submit(0, [&] { together.arrive_and_wait(); });
  together.wait();
}

// In a child: the limit is the process's own.
TEST(ThreadExecutorTest, ThreadsThatTheSystemRefusesAreAnErrorAndTheOthersEnd) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more address space than the test leaves";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit few{.rlim_cur = 1 << 28, .rlim_max = 1 << 28};  // Stacks are 8 MiB each.
    if (setrlimit(RLIMIT_AS, &few) != 0) _exit(2);
    const Status status = ThreadExecutor::Make({.threads = 1000, .name = "test"}).status();
    _exit(status.code() == StatusCode::kResourceExhausted ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  if (WIFEXITED(how) && WEXITSTATUS(how) == 2) GTEST_SKIP() << "no limit can be set";
  EXPECT_TRUE(WIFEXITED(how));
  EXPECT_EQ(WEXITSTATUS(how), 0);
}

TEST(ThreadExecutorTest, AThreadThatWouldWaitRunsTheEarliestTaskItself) {
  std::vector<int> ran;
  std::latch started(1);
  std::latch go(1);
  const auto made = ThreadExecutor::Make({.threads = 1, .name = "test"});
  ThreadExecutor& executor = *made.value();
  EXPECT_FALSE(executor.RunOne());
  executor.Submit(0, [&] {
    started.count_down();
    go.wait();
  });
  started.wait();  // Its only thread is busy.
  executor.Submit(2, [&] { ran.push_back(2); });
  executor.Submit(1, [&] { ran.push_back(1); });
  EXPECT_TRUE(executor.RunOne());
  EXPECT_TRUE(executor.RunOne());
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
  EXPECT_FALSE(executor.RunOne());
  go.count_down();
}

}  // namespace
}  // namespace headrace
