#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/mutex.h"
#include "headrace/loader.h"
#include "headrace/status.h"
#include "workers/worker_pool.h"

namespace headrace {

// A pool of workers and the loader whose batches it transforms. The loader may be replaced.
//
// A run begins in three steps:
//   1. Prepare() ends the previous run, and cancels one that another thread is starting.
//   2. AwaitRunBefore(), until it returns true.
//   3. Start() starts the run.
// Prepare(), Stop(), Attach() and Close() overtake earlier calls: those no longer change the pool
// or the loader, and their steps 2 and 3 return Cancelled.
//
// Thread safety: every method may be called from any thread.
// Shutdown: call Close() before the destructor. A Lease keeps its pool and loader alive.
class WorkerHost {
 public:
  // The objects that a call uses. Another thread may close the host meanwhile.
  struct Lease {
    std::shared_ptr<WorkerPool> pool;     // null: closed
    std::shared_ptr<BatchSource> loader;  // null: closed, or detached
    std::uint64_t number = 0;             // of the run that Prepare() was called for
  };

  WorkerHost(std::shared_ptr<WorkerPool> pool, std::shared_ptr<BatchSource> loader);
  WorkerHost(const WorkerHost&) = delete;
  WorkerHost& operator=(const WorkerHost&) = delete;

  [[nodiscard]] Lease lease() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  Lease Prepare() HEADRACE_LOCKS_EXCLUDED(changing_);

  // Waits up to `timeout_ns` for the reads of the previous run. Returns whether they have ended.
  //
  // Errors: Cancelled  it was overtaken
  Result<bool> AwaitRunBefore(const Lease& prepared, std::int64_t timeout_ns)
      HEADRACE_LOCKS_EXCLUDED(changing_);

  // Calls `start`, which starts a run of the loader, and connects the pool to its batches.
  //
  // Errors: Cancelled  it was overtaken
  //         those of `start`
  Status Start(const Lease& prepared, const std::function<Status(BatchSource&)>& start)
      HEADRACE_LOCKS_EXCLUDED(starting_);

  // Ends the run. Waits for reads in flight until `timeout_ns` after the run was first asked to
  // end, or until it is overtaken.
  void Stop(std::int64_t timeout_ns) HEADRACE_LOCKS_EXCLUDED(changing_);

  // Ends the run and uses `loader` from now on; null: no run starts until the next call. Does not
  // wait for reads.
  void Attach(std::shared_ptr<BatchSource> loader) HEADRACE_LOCKS_EXCLUDED(changing_);

  // Ends the run and releases the pool and the loader. Does not wait for reads.
  void Close() HEADRACE_LOCKS_EXCLUDED(changing_);

 private:
  // Overtakes earlier calls and ends the run. Returns the lease before the change.
  Lease Replace(const std::function<void(Lease&)>& change) HEADRACE_LOCKS_EXCLUDED(changing_);

  // OK, or Cancelled if `prepared` was overtaken.
  [[nodiscard]] Status CheckNewest(const Lease& prepared) const HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] Status CheckNewestLocked(const Lease& prepared) const
      HEADRACE_LOCKS_REQUIRED(mutex_);

  // Both are taken before mutex_. The loader may wait while they are held: a thread that takes them
  // must hold nothing that a loader waits for, such as Python's lock.
  Mutex changing_;  // held by a call that overtakes, until the previous run is asked to end
  Mutex starting_;  // held while a run starts, until the pool has it or it is cancelled
  mutable Mutex mutex_;
  Lease now_ HEADRACE_GUARDED_BY(mutex_);  // `number`: of the newest call that changed something
};

}  // namespace headrace
