#include "engine/loop/inbox.h"

#include <atomic>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "base/testing/test_executor.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Event {
  int value = 0;
  bool completes = false;
};

struct FakeClock final : Clock {
  [[nodiscard]] std::int64_t NowNanos() const override { return now_ns; }
  std::int64_t now_ns = 0;
};

// Runs a task when told.
struct HeldExecutor final : Executor {
  void Submit(std::uint64_t /*deadline*/, Task task) override { tasks.push_back(std::move(task)); }
  [[nodiscard]] int concurrency() const override { return 1; }
  std::deque<Task> tasks;
};

class InboxTest : public ::testing::Test {
 protected:
  Inbox<Event> Make(Executor& executor) {
    return Inbox<Event>(executor, [this](std::span<Event> events) {
      std::uint64_t completed = 0;
      for (const Event& event : events) {
        handled_.push_back(event.value);
        completed += event.completes;
      }
      ++calls_;
      return completed;
    });
  }

  FakeClock clock_;
  HeldExecutor held_;
  std::vector<int> handled_;
  int calls_ = 0;
};

TEST_F(InboxTest, PostHandlesTheEventOnThisThread) {
  Inbox<Event> inbox = Make(held_);
  inbox.Post({.value = 7});
  EXPECT_EQ(handled_, std::vector<int>{7});
  EXPECT_TRUE(inbox.idle());
  EXPECT_TRUE(held_.tasks.empty());
}

// Event 1 needs the executor.
TEST_F(InboxTest, WhatIsHandedOverIsHandledByOneTaskOfTheExecutor) {
  std::vector<bool> by_executor;
  Inbox<Event>* self = nullptr;
  Inbox<Event> inbox(held_, [&](std::span<Event> events) -> std::uint64_t {
    for (const Event& event : events) {
      handled_.push_back(event.value);
      by_executor.push_back(self->by_executor());
      if (event.value == 1 && !self->by_executor()) self->HandOver({.value = 1});
    }
    return 0;
  });
  self = &inbox;
  inbox.Post({.value = 1});
  inbox.Post({.value = 2});  // This thread takes, and hands over, again what waits.
  EXPECT_EQ(handled_, (std::vector<int>{1, 1, 2}));
  EXPECT_FALSE(inbox.idle());
  ASSERT_EQ(held_.tasks.size(), 1U);
  held_.tasks.front()();
  EXPECT_EQ(handled_, (std::vector<int>{1, 1, 2, 1}));
  EXPECT_EQ(by_executor, (std::vector<bool>{false, false, false, true}));
  EXPECT_TRUE(inbox.idle());
}

TEST_F(InboxTest, PostLaterLeavesItToOneTaskOfTheExecutor) {
  Inbox<Event> inbox = Make(held_);
  inbox.PostLater({.value = 1});
  inbox.PostLater({.value = 2});
  EXPECT_TRUE(handled_.empty());
  EXPECT_FALSE(inbox.idle());
  ASSERT_EQ(held_.tasks.size(), 1U);
  held_.tasks.front()();
  EXPECT_EQ(handled_, (std::vector<int>{1, 2}));
  EXPECT_EQ(calls_, 1);
  EXPECT_TRUE(inbox.idle());
}

TEST_F(InboxTest, ATaskThatComesTooLateFindsNothingToHandle) {
  Inbox<Event> inbox = Make(held_);
  inbox.PostLater({.value = 1});
  inbox.Post({.value = 2});  // Handles both.
  EXPECT_EQ(handled_, (std::vector<int>{1, 2}));
  EXPECT_FALSE(inbox.idle()) << "the task still points at the inbox";
  held_.tasks.front()();
  EXPECT_EQ(handled_.size(), 2U);
  EXPECT_TRUE(inbox.idle());
}

TEST_F(InboxTest, EventsPostedByTheHandlerAreHandledAfterItReturns) {
  std::vector<int> order;
  Inbox<Event>* self = nullptr;
  Inbox<Event> inbox(held_, [&](std::span<Event> events) {
    for (const Event& event : events) {
      order.push_back(event.value);
      if (event.value < 3) self->Post({.value = event.value + 1});
      order.push_back(-event.value);
    }
    return std::uint64_t{0};
  });
  self = &inbox;
  inbox.Post({.value = 1});
  EXPECT_EQ(order, (std::vector<int>{1, -1, 2, -2, 3, -3}));
}

TEST_F(InboxTest, IsIdleOnceAllWorkHasEndedOrCompleted) {
  Inbox<Event> inbox = Make(held_);
  inbox.BeginWork(2);
  EXPECT_FALSE(inbox.idle());
  inbox.Post({.completes = true});
  EXPECT_FALSE(inbox.idle());
  inbox.EndWork();
  EXPECT_TRUE(inbox.idle());
}

TEST_F(InboxTest, WaitUntilIdleGivesUpAtItsTimeout) {
  Inbox<Event> inbox = Make(held_);
  inbox.BeginWork();
  EXPECT_FALSE(inbox.WaitUntilIdle(clock_, /*timeout_ns=*/0));
  inbox.EndWork();
  EXPECT_TRUE(inbox.WaitUntilIdle(clock_, /*timeout_ns=*/0));
}

TEST(InboxThreadsTest, EveryEventOfEveryThreadIsHandledOnceAndByOneThreadAtATime) {
  constexpr int kThreads = 4;
  constexpr int kEvents = 2000;
  struct FakeClock clock;
  TestExecutor executor(2);
  std::atomic<int> inside = 0;
  std::atomic<bool> overlapped = false;
  std::vector<int> seen(std::size_t{kThreads} * kEvents);  // Touched by the handler alone.
  Inbox<Event> inbox(executor, [&](std::span<Event> events) {
    if (inside.fetch_add(1) != 0) overlapped = true;
    std::uint64_t completed = 0;
    for (const Event& event : events) {
      ++seen[static_cast<std::size_t>(event.value)];
      completed += event.completes;
    }
    inside.fetch_sub(1);
    return completed;
  });
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&inbox, thread] {
        for (int i = 0; i < kEvents; ++i) {
          inbox.BeginWork();
          const Event event{.value = thread * kEvents + i, .completes = true};
          if (i % 3 == 0) {
            inbox.PostLater(event);
          } else {
            inbox.Post(event);
          }
        }
      });
    }
  }
  ASSERT_TRUE(inbox.WaitUntilIdle(clock, /*timeout_ns=*/-1));
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

}  // namespace
}  // namespace headrace
