#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>

#include "base/mutex.h"
#include "loader/machine/thread_executor.h"

namespace headrace {

// Ends jobs that other nodes still need, each on a thread of its own: one that a slow node holds up
// delays no other, and no new job.
//
// Thread safety: every method may be called from any thread.
// Shutdown: the destructor waits for all of them.
class EndingJobs {
 public:
  static constexpr std::size_t kThreadsMax = 64;

  // Runs `end` on a thread of its own. If the system has none, or kThreadsMax run, on this thread.
  void Run(std::function<void()> end) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  struct EndingJob {
    std::atomic<bool> ended = false;
    std::unique_ptr<ThreadExecutor> thread;  // Last: `ended` is used until it has gone.
  };

  // Returns false if there is no thread.
  bool Begin(std::function<void()>& end) HEADRACE_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  std::list<EndingJob> ending_jobs_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
