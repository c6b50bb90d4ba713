#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace headrace {

// Runs tasks, earliest deadline first. An implementation owns its threads; that of the simulator
// has none.
//
// Thread safety: Submit() may be called from any thread, also from inside a task.
// Shutdown: the destructor runs every submitted task, then returns.
class Executor {
 public:
  using Task = std::function<void()>;

  virtual ~Executor() = default;

  // Runs `task` once, on a thread of the executor, never inline. Among waiting tasks the one with
  // the smallest `deadline` starts first; those with equal deadlines start in the order of
  // submission. A deadline is not a time, but the sequence number of the task's batch.
  virtual void Submit(std::uint64_t deadline, Task task) = 0;

  // As Submit(), for a task that works on `bytes` bytes: some executors model its duration.
  virtual void SubmitSized(std::uint64_t deadline, std::uint64_t bytes, Task task) {
    static_cast<void>(bytes);
    Submit(deadline, std::move(task));
  }

  // As Submit() with the smallest deadline, for a task that may take seconds. Threads that are not
  // the executor's, but help it while they wait, do not run it.
  virtual void SubmitLong(Task task) { Submit(/*deadline=*/0, std::move(task)); }

  // The number of tasks that can run at the same time; at least 1.
  [[nodiscard]] virtual int concurrency() const = 0;
};

}  // namespace headrace
