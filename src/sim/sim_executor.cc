#include "sim/sim_executor.h"

#include "base/check.h"

namespace headrace {

SimExecutor::SimExecutor(SimLoop& loop, int cores, Cost cost_ns)
    : loop_(loop), cores_(cores), cost_ns_(std::move(cost_ns)) {
  HEADRACE_CHECK(cores > 0);
}

SimExecutor::~SimExecutor() { HEADRACE_CHECK(busy_ == 0 && waiting_.empty()); }

void SimExecutor::Submit(std::uint64_t deadline, Task task) {
  SubmitSized(deadline, /*bytes=*/0, std::move(task));
}

void SimExecutor::SubmitSized(std::uint64_t deadline, std::uint64_t bytes, Task task) {
  waiting_.emplace(std::pair(deadline, next_number_++),
                   Waiting{.bytes = bytes, .task = std::move(task)});
  // From the loop: a task never runs inside Submit().
  loop_.After(0, [this] { StartTasks(); });
}

void SimExecutor::StartTasks() {
  while (busy_ < cores_ && !waiting_.empty()) {
    ++busy_;
    Waiting first = std::move(waiting_.extract(waiting_.begin()).mapped());
    const std::int64_t ns = cost_ns_(first.bytes);
    loop_.After(ns, [this, ns, task = std::move(first.task)] {
      --busy_;
      loop_.RunTask(ns, task);
      StartTasks();
    });
  }
}

}  // namespace headrace
