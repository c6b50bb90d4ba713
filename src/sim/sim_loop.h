#pragma once

// sim/ runs plan/ and engine/ as they are under a virtual clock: modelled stores and cores, one
// thread, every run decided by its seed.

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace headrace {

// Virtual time: events in the order of their times, equal times in the order they were added.
//
// Thread safety: none; a simulation is one thread.
class SimLoop {
 public:
  // The clock that shows the time of the event that runs.
  [[nodiscard]] const Clock& clock() const { return clock_; }
  [[nodiscard]] std::int64_t now_ns() const { return clock_.now_ns; }

  // Runs `task`, which began `taken_ns` ago: its first look at the clock shows that time, later
  // ones the time now. So a task measures how long it took.
  void RunTask(std::int64_t taken_ns, const std::function<void()>& task);

  // Runs `event` once, `delay_ns` (not negative) from now.
  void After(std::int64_t delay_ns, std::function<void()> event);

  // Runs the next event. False if there is none.
  bool RunOne();

  // Runs events until there are none; false, with events left, after `events_max` of them.
  bool RunUntilIdle(std::uint64_t events_max);

 private:
  struct SimClock final : Clock {
    [[nodiscard]] std::int64_t NowNanos() const override {
      return now_ns - std::exchange(task_ns, 0);
    }
    std::int64_t now_ns = 0;
    mutable std::int64_t task_ns = 0;  // since the task that runs began; 0: it looked already
  };
  struct Event {
    std::int64_t time_ns;
    std::uint64_t number;
    std::uint32_t slot;  // of what it runs
    bool operator>(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  SimClock clock_;
  std::uint64_t next_number_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::function<void()>> runs_;  // by slot
  std::vector<std::uint32_t> free_slots_;
};

}  // namespace headrace
