#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "headrace/status.h"

namespace headrace {

struct ThreadExecutorOptions {
  int threads = 1;
  std::string name;       // of its threads, as tools show them: at most 15 characters
  int nice = 0;           // added to the threads' nice value, so that they yield to the trainer
  std::vector<int> cpus;  // preferred processors; empty: any. Best effort
};

// An executor of real threads, earliest deadline first.
//
// Thread safety, shutdown: as Executor.
class ThreadExecutor final : public Executor {
 public:
  // Errors: ResourceExhausted  the system cannot start so many threads
  static Result<std::unique_ptr<ThreadExecutor>> Make(const ThreadExecutorOptions& options);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void Submit(std::uint64_t deadline, Task task) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void SubmitLong(Task task) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Runs the waiting task with the earliest deadline on the calling thread, but none of
  // SubmitLong(); returns false if there is none. For threads that would otherwise wait for the
  // tasks.
  bool RunOne() HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] int concurrency() const override { return static_cast<int>(threads_.size()); }

 private:
  struct Entry {
    std::uint64_t deadline;
    std::uint64_t number;
    Task task;
    // For a heap with the earliest entry on top.
    bool operator<(const Entry& other) const {
      return deadline != other.deadline ? deadline > other.deadline : number > other.number;
    }
  };

  ThreadExecutor() = default;
  Status StartThreads(const ThreadExecutorOptions& options);
  void Work() HEADRACE_LOCKS_EXCLUDED(mutex_);
  Task TakeFirst() HEADRACE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar submitted_;
  std::vector<Entry> waiting_ HEADRACE_GUARDED_BY(mutex_);     // a heap
  std::deque<Task> waiting_long_ HEADRACE_GUARDED_BY(mutex_);  // these before the others
  std::uint64_t next_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  int idle_ HEADRACE_GUARDED_BY(mutex_) = 0;  // threads that wait
  bool closing_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace headrace
