#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/members.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "engine/batch/batch.h"
#include "ipc/connection.h"
#include "loader/batch_queue.h"
#include "workers/layout.h"
#include "workers/task_sender.h"
#include "workers/transformed_batch.h"
#include "workers/worker_messages.h"

namespace headrace {

struct WorkerPoolOptions {
  std::vector<BatchField> schema;  // of input batches
  bool whole_batches = false;      // a task is a whole batch; its result is one batch, of any shape
  RaggedRows ragged = RaggedRows::kError;
  std::uint32_t batches_max = 4;  // taken from the source, not yet by the consumer; at least 1
  std::uint64_t memory_bytes = 64U << 20;  // for results
};

// The samples of a task.
struct TaskSamples {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t first_slot = 0;
  std::vector<SampleId> samples;  // by slot, from first_slot on
};

// Why there is no batch.
struct TransformFailure {
  enum class Kind : std::uint8_t {
    kTransform,   // the transform failed for the first sample of `tasks`
    kShape,       // the results form no batch: see `text`
    kStart,       // a worker could not start; no text: it closed its connection
    kWorkerLost,  // a worker ended later; it had `tasks`, oldest first
  };
  Kind kind = Kind::kTransform;
  std::size_t worker = 0;  // kStart, kWorkerLost
  std::string text;
  std::string pickle;  // of the exception; may be empty
  std::vector<TaskSamples> tasks;
};

// Runs a transform on the batches of a source, in worker processes to which it has connections.
//
// It has two threads: one takes batches from the source, one receives the workers' replies. Any
// thread may send a task. Each worker has up to two tasks, so that it need not wait for this
// process. A task takes about kTaskNs: long enough to make messages cheap, short enough that all
// workers finish a batch at about the same time.
//
// Memory: batches of the source must lie in shared memory; the pool holds them until they are
// transformed. Results take at most memory_bytes. The pool works on one batch until the first
// result shows the size of results, then on as many as leave room for the two that a consumer
// holds. Batches wait for memory and get it in order. The oldest batch gets memory beyond the
// limit, which stats count, if it is larger than the limit, or if the consumer waits for it while
// holding all other memory.
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
  using Source = std::function<Result<BatchQueue::Taken>(std::int64_t timeout_ns)>;

  using Connections = TaskSender::Connections;

  struct Taken {
    std::unique_ptr<TransformedBatch> batch;  // null: the time limit passed, a failure, or the end
    std::optional<TransformFailure> failure;
    bool ended = false;
  };

  struct Stats {
    std::uint64_t batches = 0;  // taken by the consumer
    std::uint64_t samples = 0;
    std::uint64_t tasks = 0;    // done
    std::uint64_t rows = 0;     // of them
    std::uint64_t busy_ns = 0;  // in the transform, summed over workers
    BufferPool::Stats memory;
  };

  // The approximate duration of a task.
  static constexpr std::uint64_t kTaskNs = 1'000'000;

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
  // returns once no thread is inside the source, or Begin() was called. Until Begin(), Next()
  // returns Cancelled. Idempotent.
  void Halt(const std::function<void()>& stop_source);

  // Returns the next batch, in the source's order. Waits up to `timeout_ns`. A failed transform is
  // returned in place of its batch, the loss of a worker at once. After either, call only Halt().
  //
  // Errors: those of the source
  Result<Taken> Next(std::int64_t timeout_ns);

  // True if a worker was lost: then no more batches can come.
  [[nodiscard]] bool broken() const;
  [[nodiscard]] Stats stats() const;

 private:
  // Rows of a batch, for one worker.
  struct Task {
    std::uint64_t first = 0;  // slot
    std::uint64_t rows = 0;
    std::uint64_t number = 0;  // of the message that sent it
    std::size_t worker = 0;
    bool writing = false;            // it has received its place in the batch
    bool written = false;            // its results lie in the batch
    std::optional<TaskShapes> kept;  // set if the worker keeps the results: their shapes
    std::string objects;
  };

  // A batch that workers transform, or that is complete.
  struct Work {
    std::shared_ptr<Batch> in;  // null once it is complete
    std::unique_ptr<TransformedBatch> out;
    std::vector<Task> tasks;  // by slot
    std::size_t sent = 0;     // tasks sent to workers
    std::size_t open = 0;     // tasks without a reply in this round
    bool direct = false;      // workers write into `out` directly
    bool waits = false;       // for memory to write into; workers have no task of this batch
    bool dropped = false;     // the batch is no longer needed
    bool complete = false;
    std::optional<TransformFailure> failure;
  };

  struct Worker {
    bool ready = false;
    bool lost = false;
    std::deque<std::uint64_t> computing;  // numbers of tasks, the oldest first
  };

  using TaskPlace = std::pair<std::shared_ptr<Work>, std::size_t>;

  WorkerPool(WorkerPoolOptions options, Connections connections, UniqueFd wake);

  void Wake();
  void Feed();
  // Waits until a batch may be taken. Returns the source; the caller must call LeaveSource() next.
  // Returns null at the end.
  Source EnterSource();
  void LeaveSource(Result<BatchQueue::Taken> taken);
  void Hear();
  void HearWorker(std::size_t worker);

  void Admit(std::shared_ptr<Batch> batch) HEADRACE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] std::uint64_t TaskRows(std::uint64_t rows) const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Sends waiting tasks to idle workers.
  void Pump() HEADRACE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] std::optional<std::size_t> IdleWorker() const HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendCompute(std::size_t worker, const std::shared_ptr<Work>& work, std::size_t position)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendForget(Task& task) HEADRACE_LOCKS_REQUIRED(mutex_);
  void OnReply(std::size_t worker, WorkerReply reply) HEADRACE_LOCKS_REQUIRED(mutex_);
  // Called when all tasks of `work` have replied in this round.
  void Settle(const std::shared_ptr<Work>& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  // Asks workers to write the results of `work` into its memory, computed now or kept before.
  void StartWriting(const std::shared_ptr<Work>& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Fail(Work& work, TransformFailure failure) HEADRACE_LOCKS_REQUIRED(mutex_);
  // How many batches may be in progress at once.
  [[nodiscard]] std::size_t WorksMax() const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Gives memory to the batches that wait for it, in order.
  void GiveMemory() HEADRACE_LOCKS_REQUIRED(mutex_);
  // Returns false if there is no memory now.
  Result<bool> TakeMemory(TransformedBatch& batch, bool beyond) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Finish(Work& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Lose(std::size_t worker, TransformFailure failure) HEADRACE_LOCKS_REQUIRED(mutex_);

  const WorkerPoolOptions options_;
  const Connections connections_;
  const UniqueFd wake_;  // eventfd: wakes Hear() when the pool stops or memory is freed

  mutable Mutex mutex_;
  CondVar changed_;
  Source source_ HEADRACE_GUARDED_BY(mutex_);
  bool feeding_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool inside_ HEADRACE_GUARDED_BY(mutex_) = false;  // a thread is in the source
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);  // how the source ended
  std::vector<Worker> workers_ HEADRACE_GUARDED_BY(mutex_);
  TaskSender sender_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Work>> works_ HEADRACE_GUARDED_BY(mutex_);  // in order
  // By number: tasks that a worker has, or whose results it keeps.
  std::unordered_map<std::uint64_t, TaskPlace> tasks_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t task_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<OutputLayout> plain_ HEADRACE_GUARDED_BY(mutex_);   // of the newest batch
  std::shared_ptr<BufferPool> memory_ HEADRACE_GUARDED_BY(mutex_);  // null until the first result
  std::uint64_t batch_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;       // of the largest; 0: none yet
  bool awaited_ HEADRACE_GUARDED_BY(mutex_) = false;                // the consumer is inside Next()
  std::uint64_t row_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;  // of the newest tasks, on average
  std::optional<TransformFailure> lost_ HEADRACE_GUARDED_BY(mutex_);
  Stats stats_ HEADRACE_GUARDED_BY(mutex_);

  std::jthread feeder_;
  std::jthread hearer_;
};

HEADRACE_MEMBERS(WorkerPool::Stats, batches, samples, tasks, rows, busy_ns, memory)

}  // namespace headrace
