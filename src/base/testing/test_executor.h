#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"

namespace headrace {

// An executor of real threads for tests: first come, first served; ignores deadlines.
//
// Thread safety, shutdown: as Executor.
class TestExecutor final : public Executor {
 public:
  explicit TestExecutor(int threads);
  ~TestExecutor() override;

  void Submit(std::uint64_t deadline, Task task) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] int concurrency() const override { return static_cast<int>(threads_.size()); }

 private:
  void Work() HEADRACE_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ HEADRACE_GUARDED_BY(mutex_);
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace headrace
