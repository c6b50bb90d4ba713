#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "headrace/batch.h"
#include "headrace/status.h"
#include "workers/layout.h"
#include "workers/result_memory.h"
#include "workers/task_sender.h"
#include "workers/transform_queue.h"
#include "workers/transformed_batch.h"

namespace headrace {

struct WorkerPoolOptions {
  std::vector<BatchField> schema;  // of input batches
  ResultForm form;
  std::uint32_t batches_max = 4;  // taken from the source, not yet by the consumer; at least 1
  std::optional<std::uint64_t> memory_bytes = 64U << 20;  // for results; nothing: no limit
  std::uint32_t threads = 1;                              // of each worker, until it reports it
};

// Runs a transform on the batches of a source, in worker processes to which it has connections.
//
// It has two threads: one takes batches from the source, one receives the workers' replies. Both,
// and the consumer, call the TransformQueue, under one lock; so any thread may send a task.
//
// Memory: batches of the source must lie in shared memory; the pool holds them until they are
// transformed. Results take at most memory_bytes, if set, except what the stats count as
// beyond (result_memory.h).
//
// Thread safety: Next() by one thread at a time, the other methods by any thread. Call Halt()
// between two calls of Begin().
//
// Shutdown: call Halt() before the destructor. The destructor closes the workers' connections.
//
// Fork: a child must leak the pool, not destroy it.
class WorkerPool {
 public:
  // Waits up to `timeout_ns` (negative: no limit), as Loader::Next() does. Called by one thread at
  // a time.
  using Source = std::function<Result<TakenBatch>(std::int64_t timeout_ns)>;

  using Connections = TaskSender::Connections;

  using Taken = TransformTaken;
  using Stats = TransformQueue::Stats;

  // `workers`: one connection for each worker; at least one.
  //
  // Errors: ResourceExhausted  no descriptor is left
  static Result<std::unique_ptr<WorkerPool>> Make(WorkerPoolOptions options, Connections workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Takes batches from `source` from now on. Call it first, or after Halt().
  void Begin(Source source);

  // Drops all batches that were not taken. Calls `stop_source`, which must wake the source, and
  // returns once no thread is inside the source, or Begin() was called: what the old source gives
  // after that is dropped. Until Begin(), Next() returns Cancelled. Idempotent.
  void Halt(const std::function<void()>& stop_source);

  // Returns the next batch, in the order that ResultForm says. Waits up to `timeout_ns`. A failed
  // transform is returned in place of its batch; later batches follow. The loss of a worker is
  // returned at once: then call only Halt().
  //
  // Errors: those of the source
  Result<Taken> Next(std::int64_t timeout_ns);

  // Waits up to `timeout_ns` until no worker computes a task, also of batches that were dropped.
  // Returns whether that is so.
  bool AwaitIdle(std::int64_t timeout_ns);

  // Results get other memory from now on: a child that is about to be forked may keep batches.
  void RenewMemory();
  // Returns memory of results that nobody holds to the system.
  void ReturnFreeMemory();

  // True if a worker was lost: then no more batches can come.
  [[nodiscard]] bool broken() const;
  [[nodiscard]] Stats stats() const;

 private:
  WorkerPool(WorkerPoolOptions options, Connections connections, UniqueFd wake);

  void Wake();
  void Feed();
  // Waits until a batch may be taken. Returns the source; the caller must call LeaveSource() next.
  // Returns null at the end.
  Source EnterSource();
  void LeaveSource(Result<TakenBatch> taken);
  void Hear();
  void HearWorker(std::size_t worker);

  const std::vector<BatchField> schema_;
  const Connections connections_;
  const UniqueFd wake_;  // eventfd: wakes Hear() when the pool stops or memory is freed

  mutable Mutex mutex_;
  CondVar changed_;
  Source source_ HEADRACE_GUARDED_BY(mutex_);
  bool feeding_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::uint64_t run_ HEADRACE_GUARDED_BY(mutex_) = 0;  // counts calls of Begin()
  // The run whose source a thread is in.
  std::optional<std::uint64_t> inside_ HEADRACE_GUARDED_BY(mutex_);
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);  // how the source ended
  TaskSender sender_ HEADRACE_GUARDED_BY(mutex_);
  ResultMemory memory_ HEADRACE_GUARDED_BY(mutex_);
  TransformQueue queue_ HEADRACE_GUARDED_BY(mutex_);

  std::jthread feeder_;
  std::jthread hearer_;
};

}  // namespace headrace
