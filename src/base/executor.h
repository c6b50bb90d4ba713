#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace headrace {

// Runs tasks, earliest deadline first. Threads belong to whoever implements it: loader/ has real
// ones, sim/ none.
//
// Thread safety: Submit() may be called from any thread, from inside a task too.
// Shutdown: the destructor runs every task that was submitted, then returns.
class Executor {
 public:
  using Task = std::function<void()>;

  virtual ~Executor() = default;

  // Runs `task` once, on a thread of the executor, never inline. Among waiting tasks the smallest
  // `deadline` starts first, equal ones in the order of submission. A deadline is a number to
  // compare (the sequence number of the batch a task belongs to), not a time.
  virtual void Submit(std::uint64_t deadline, Task task) = 0;

  // The same, of a task that works on `bytes` bytes: for executors that model how long it takes.
  virtual void SubmitSized(std::uint64_t deadline, std::uint64_t bytes, Task task) {
    static_cast<void>(bytes);
    Submit(deadline, std::move(task));
  }

  // How many tasks can run at once; at least 1.
  [[nodiscard]] virtual int concurrency() const = 0;
};

}  // namespace headrace
