#include "loader/ending/reaper.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>

namespace headrace {
namespace {

constexpr std::int64_t kForEverNs = 60'000'000'000;

// Its destructor waits, like one that waits for storage.
struct Slow {
  Slow(std::binary_semaphore& release_when, std::atomic<bool>& destroyed_then)
      : release(release_when), destroyed(destroyed_then) {}
  ~Slow() {
    release.acquire();
    destroyed = true;
  }
  Slow(const Slow&) = delete;
  Slow& operator=(const Slow&) = delete;

  std::binary_semaphore& release;
  std::atomic<bool>& destroyed;
};

TEST(ReaperTest, WhatEndsInTimeIsGoneWhenTheCallReturns) {
  std::binary_semaphore release(1);
  std::atomic<bool> destroyed = false;
  EXPECT_TRUE(DestroyWithin(std::make_shared<Slow>(release, destroyed), kForEverNs));
  EXPECT_TRUE(destroyed);
  EXPECT_EQ(ReaperObjectCount(), 0U);
}

TEST(ReaperTest, WhatDoesNotEndIsHeldUntilItDoes) {
  std::binary_semaphore release(0);
  std::atomic<bool> destroyed = false;
  EXPECT_FALSE(DestroyWithin(std::make_shared<Slow>(release, destroyed), 0));
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(ReaperObjectCount(), 1U);
  release.release();
  while (ReaperObjectCount() != 0) std::this_thread::yield();
  EXPECT_TRUE(destroyed);
}

TEST(ReaperTest, TheFoldersOfWhatItHoldsAreKnownUntilItEnds) {
  std::binary_semaphore release(0);
  std::atomic<bool> destroyed = false;
  EXPECT_FALSE(DestroyWithin(std::make_shared<Slow>(release, destroyed), 0, {"/tier/rank-0"}));
  EXPECT_TRUE(ReaperHolds("/tier/./rank-0"));
  EXPECT_FALSE(ReaperHolds("/tier/rank-1"));
  release.release();
  while (ReaperObjectCount() != 0) std::this_thread::yield();
  EXPECT_FALSE(ReaperHolds("/tier/rank-0"));
}

// Whatever other threads were doing in the parent: a child that hangs is killed by its alarm.
TEST(ReaperTest, AForkedChildHasAReaperOfItsOwn) {
  std::atomic<bool> over = false;
  std::jthread busy([&] {
    while (!over) ReaperObjectCount();
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      _exit(ReaperObjectCount() == 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "child " << i;
  }
  over = true;
}

}  // namespace
}  // namespace headrace
