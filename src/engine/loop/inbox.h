#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace headrace {

// The events of a state machine that any thread may post to and that runs on one thread at a time,
// with a count of the work that it has in flight.
//
// Thread safety: every method may be called from any thread, from inside the handler too, but
// WaitUntilIdle().
// Ownership: the executor outlives it.
// Shutdown: WaitUntilIdle() must have returned true before destruction.
template <typename Event>
class Inbox {
 public:
  // Handles events, all that are there at once. Runs on one thread at a time. Returns how many
  // pieces of work in flight they complete.
  using Handler = std::function<std::uint64_t(std::span<Event>)>;

  Inbox(Executor& executor, Handler handler) : executor_(executor), handler_(std::move(handler)) {}
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Adds an event, and handles all events on this thread unless another one does already.
  void Post(Event event) {
    {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
      if (std::exchange(running_, true)) return;
    }
    Run(/*by_executor=*/false);
  }

  // Adds an event, and has the executor handle it.
  void PostLater(Event event) {
    {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
      if (running_ || scheduled_) return;
      scheduled_ = true;
      ++in_flight_;
    }
    Schedule();
  }

  // For the handler: whether it runs on a thread of the executor's own, which may take long.
  // Otherwise it may be a thread that only posts an event.
  [[nodiscard]] bool by_executor() const { return by_executor_; }
  // For the handler: adds an event, and has the executor handle it and all that follow.
  void HandOver(Event event) {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    handing_over_ = true;
  }

  // `count` pieces of work begin. Each ends with an event that completes it, or with EndWork().
  void BeginWork(std::uint64_t count = 1) {
    MutexLock lock(mutex_);
    in_flight_ += count;
  }
  void EndWork() {
    MutexLock lock(mutex_);
    if (--in_flight_ == 0) idle_.NotifyAll();
  }

  // No event waits or is handled, and no work is in flight.
  [[nodiscard]] bool idle() const {
    MutexLock lock(mutex_);
    return IsIdle();
  }

  // Waits until idle(), at most `timeout_ns` (negative: without limit). False: it is not.
  bool WaitUntilIdle(const Clock& clock, std::int64_t timeout_ns) {
    const std::int64_t begin_ns = clock.NowNanos();
    MutexLock lock(mutex_);
    while (!IsIdle()) {
      if (timeout_ns < 0) {
        idle_.Wait(mutex_);
        continue;
      }
      const std::int64_t left_ns = timeout_ns - (clock.NowNanos() - begin_ns);
      if (left_ns <= 0) return false;
      static_cast<void>(idle_.WaitFor(mutex_, left_ns));
    }
    return true;
  }

 private:
  [[nodiscard]] bool IsIdle() const HEADRACE_LOCKS_REQUIRED(mutex_) {
    return !running_ && in_flight_ == 0 && events_.empty();
  }

  // After scheduled_ was set.
  void Schedule() {
    executor_.SubmitLong([this] {
      {
        MutexLock lock(mutex_);
        scheduled_ = false;
        --in_flight_;
        if (std::exchange(running_, true)) return;
      }
      Run(/*by_executor=*/true);
    });
  }

  void Run(bool by_executor) {
    by_executor_ = by_executor;
    std::vector<Event> events;
    for (;;) {
      events.clear();
      {
        MutexLock lock(mutex_);
        if (events_.empty()) {
          running_ = false;
          idle_.NotifyAll();
          return;
        }
        events.swap(events_);
      }
      const std::uint64_t completed = handler_(events);
      bool handing_over = false;
      {
        MutexLock lock(mutex_);
        in_flight_ -= completed;  // Only now: until here the handler may touch their work.
        handing_over = handing_over_;
      }
      if (handing_over) return LeaveToExecutor();
    }
  }

  // Once a step: kept out of Run(), which the compiler puts where events are posted.
  [[gnu::noinline]] void LeaveToExecutor() {
    {
      MutexLock lock(mutex_);
      handing_over_ = running_ = false;
      if (std::exchange(scheduled_, true)) return;
      ++in_flight_;
    }
    Schedule();
  }

  Executor& executor_;
  const Handler handler_;
  bool by_executor_ = false;  // of the thread that runs

  mutable Mutex mutex_;
  CondVar idle_;
  std::vector<Event> events_ HEADRACE_GUARDED_BY(mutex_);
  bool running_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool scheduled_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool handing_over_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::uint64_t in_flight_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
