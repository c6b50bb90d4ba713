#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/executor.h"
#include "base/mutex.h"

namespace headrace {

// An executor without threads: runs a task on command, on the calling thread.
//
// Thread safety: every method may be called from any thread.
class ManualExecutor final : public Executor {
 public:
  ~ManualExecutor() override { RunAll(); }

  void Submit(std::uint64_t deadline, Task task) override HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    waiting_.emplace(std::pair(deadline, next_number_++), std::move(task));
  }
  [[nodiscard]] int concurrency() const override { return 1; }

  // Runs the task with the earliest deadline. Returns false if there is none.
  bool RunOne() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    Task task;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) return false;
      task = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    task();
    return true;
  }
  void RunAll() {
    while (RunOne()) {
    }
  }

 private:
  Mutex mutex_;
  std::uint64_t next_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Task> waiting_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
