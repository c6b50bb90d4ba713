#include "sim/sim_loop.h"

#include <utility>

#include "base/check.h"

namespace headrace {

void SimLoop::After(std::int64_t delay_ns, std::function<void()> event) {
  HEADRACE_CHECK(delay_ns >= 0);
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(runs_.size()));
    runs_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  runs_[slot] = std::move(event);
  events_.push({clock_.now_ns + delay_ns, next_number_++, slot});
}

void SimLoop::RunTask(std::int64_t taken_ns, const std::function<void()>& task) {
  HEADRACE_CHECK(taken_ns >= 0 && taken_ns <= clock_.now_ns);
  clock_.task_ns = taken_ns;
  task();
  clock_.task_ns = 0;
}

bool SimLoop::RunOne() {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  clock_.now_ns = event.time_ns;
  const std::function<void()> run = std::exchange(runs_[event.slot], nullptr);
  free_slots_.push_back(event.slot);
  run();
  return true;
}

bool SimLoop::RunUntilIdle(std::uint64_t events_max) {
  for (std::uint64_t i = 0; i < events_max; ++i) {
    if (!RunOne()) return true;
  }
  return events_.empty();
}

}  // namespace headrace
