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

#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "engine/batch/batch.h"
#include "ipc/connection.h"
#include "ipc/wire.h"
#include "loader/batch_queue.h"
#include "workers/layout.h"
#include "workers/worker_messages.h"

namespace headrace {

struct WorkerPoolOptions {
  std::vector<BatchField> schema;  // of the batches that come in
  bool whole_batches = false;      // a task is a batch: its result is one, of any shape
  RaggedRows ragged = RaggedRows::kError;
  std::uint32_t batches_max = 4;  // taken from the source and not yet by the consumer; at least 1
  std::uint64_t memory_bytes = 64U << 20;  // for results
};

// A transformed batch. Its destructor gives its memory back, on any thread.
struct TransformedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;  // the consumer held all memory for batches when it was made
  std::vector<SampleId> samples;
  OutputLayout layout;
  std::vector<std::string> objects;  // of each task, by slot: its leaves that are no arrays
  Buffer memory;
};

// Samples that a task is about.
struct TaskSamples {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint64_t first_slot = 0;
  std::vector<SampleId> samples;  // by slot, from first_slot on
};

// Why there is no batch.
struct TransformFailure {
  enum class Kind : std::uint8_t {
    kTransform,   // it failed for a sample: the first one of `tasks`
    kShape,       // the results make no batch: see `text`
    kStart,       // a worker could not begin; no text: it closed its connection
    kWorkerLost,  // the same later, with `tasks` in hand, the oldest first
  };
  Kind kind = Kind::kTransform;
  std::size_t worker = 0;  // kStart, kWorkerLost
  std::string text;
  std::string pickle;  // of the exception; may be empty
  std::vector<TaskSamples> tasks;
};

// Runs a transform on the batches of a source, in worker processes at the other ends of
// connections.
//
// Two threads: one takes batches from the source, one receives the workers' replies. Any
// thread that has a task for a worker sends it. Each worker has up to two tasks, so that it need
// not wait for this process. A task takes about kTaskNs: long enough to make messages cheap, short
// enough that all workers finish a batch at about the same time.
//
// Memory: batches of the source must lie in shared memory; they are held until they are
// transformed. Results lie in memory_bytes. The pool works on as many batches at once as leave room
// for the two that a consumer holds, and on one until the first result shows how large results are.
// Batches get their memory in order, and wait for it. The oldest batch gets memory beyond the
// limit, which stats count, if it is larger than the limit, or if the consumer waits for it while
// it holds all other memory.
//
// Thread safety: Next() from one thread at a time, everything else from any thread. Between Begin()
// and the Halt() before it nobody may call Begin().
//
// Shutdown: call Halt() before the destructor. The destructor closes the workers' connections.
//
// Fork: a child must not destroy it, but leak it.
class WorkerPool {
 public:
  // Waits up to `timeout_ns` (negative: as long as it takes), as Loader::Next() does. Called by one
  // thread at a time.
  using Source = std::function<Result<BatchQueue::Taken>(std::int64_t timeout_ns)>;

  using Connections = std::vector<std::unique_ptr<IpcConnection>>;

  struct Taken {
    std::unique_ptr<TransformedBatch> batch;  // null: nothing came in time, a failure, or the end
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

  // About how long a task is.
  static constexpr std::uint64_t kTaskNs = 1'000'000;

  // One connection a worker; at least one.
  //
  // Errors: ResourceExhausted  no descriptor is left
  static Result<std::unique_ptr<WorkerPool>> Make(WorkerPoolOptions options, Connections workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Goes on with the batches of `source`, from now on. After Halt(), or before anything else.
  void Begin(Source source);

  // Drops everything that was not taken, and returns once nobody is inside the source, which
  // `stop_source` has to wake, or Begin() was called. Until then, Next() is Cancelled. Idempotent.
  void Halt(const std::function<void()>& stop_source);

  // The next batch, in the source's order; waits up to `timeout_ns`. A failure of a transform comes
  // in its batch's place, the loss of a worker at once. After either there is only Halt() to call.
  //
  // Errors: those of the source
  Result<Taken> Next(std::int64_t timeout_ns);

  // Whether a worker was lost: then no batch can come any more.
  [[nodiscard]] bool broken() const;
  [[nodiscard]] Stats stats() const;

 private:
  // Rows of a batch, for one worker.
  struct Task {
    std::uint64_t first = 0;  // slot
    std::uint64_t rows = 0;
    std::uint64_t number = 0;  // of the message that it was sent with
    std::size_t worker = 0;
    bool writing = false;            // it has received its place in the batch
    bool written = false;            // its results lie in the batch
    std::optional<TaskShapes> kept;  // the worker keeps its results, which look like this
    std::string objects;
  };

  // A batch in the workers' hands, or ready.
  struct Work {
    std::shared_ptr<Batch> in;  // null once it is complete
    std::unique_ptr<TransformedBatch> out;
    std::vector<Task> tasks;  // by slot
    std::size_t sent = 0;     // tasks given to workers
    std::size_t open = 0;     // tasks that have not answered, in this round
    bool direct = false;      // workers write into `out` at once
    bool waits = false;       // for memory to write into; workers have no task of it
    bool dropped = false;     // nobody wants it any more
    bool complete = false;
    std::optional<TransformFailure> failure;
  };

  struct Worker {
    bool ready = false;
    bool lost = false;
    std::deque<std::uint64_t> computing;  // numbers of tasks, the oldest first
    std::vector<std::uint64_t> memories;  // that it knows
  };

  using TaskPlace = std::pair<std::shared_ptr<Work>, std::size_t>;

  WorkerPool(WorkerPoolOptions options, Connections connections, UniqueFd wake);

  void Wake();
  void Feed();
  // Waits until a batch may be taken; then what gives it, and LeaveSource() has to follow. Null at
  // the end.
  Source EnterSource();
  void LeaveSource(Result<BatchQueue::Taken> taken);
  void Hear();
  void HearWorker(std::size_t worker);

  void Admit(std::shared_ptr<Batch> batch) HEADRACE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] std::uint64_t TaskRows(std::uint64_t rows) const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Gives workers what there is to do.
  void Pump() HEADRACE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] std::optional<std::size_t> IdleWorker() const HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendCompute(std::size_t worker, const std::shared_ptr<Work>& work, std::size_t position)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendWrite(const std::shared_ptr<Work>& work, std::size_t position)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  void SendForget(Task& task) HEADRACE_LOCKS_REQUIRED(mutex_);
  // Sends `body` and what the worker has to map for it.
  void Send(std::size_t worker, std::span<const std::shared_ptr<SharedMemory>> memories,
            const WireWriter& body) HEADRACE_LOCKS_REQUIRED(mutex_);
  std::uint64_t NumberOf(const std::shared_ptr<SharedMemory>& memory)
      HEADRACE_LOCKS_REQUIRED(mutex_);

  void OnReply(std::size_t worker, WorkerReply reply) HEADRACE_LOCKS_REQUIRED(mutex_);
  // All tasks of `work` have answered, in this round.
  void Settle(const std::shared_ptr<Work>& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  // Has workers write the results of `work` into its memory: computed now, or kept before.
  void StartWriting(const std::shared_ptr<Work>& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Fail(Work& work, TransformFailure failure) HEADRACE_LOCKS_REQUIRED(mutex_);
  // How many batches may be in work at once.
  [[nodiscard]] std::size_t WorksMax() const HEADRACE_LOCKS_REQUIRED(mutex_);
  // Gives memory to the batches that wait for it, in order.
  void GiveMemory() HEADRACE_LOCKS_REQUIRED(mutex_);
  // Returns false if there is no memory now.
  Result<bool> TakeMemory(TransformedBatch& batch, bool beyond) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Finish(Work& work) HEADRACE_LOCKS_REQUIRED(mutex_);
  void Lose(std::size_t worker, TransformFailure failure) HEADRACE_LOCKS_REQUIRED(mutex_);

  const WorkerPoolOptions options_;
  const Connections connections_;
  const UniqueFd wake_;  // eventfd: wakes Hear() when the pool stops or memory came free

  mutable Mutex mutex_;
  CondVar changed_;
  Source source_ HEADRACE_GUARDED_BY(mutex_);
  bool feeding_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool inside_ HEADRACE_GUARDED_BY(mutex_) = false;  // somebody is in the source
  bool stopping_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);  // how the source ended
  std::vector<Worker> workers_ HEADRACE_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Work>> works_ HEADRACE_GUARDED_BY(mutex_);  // in order
  // Tasks that a worker has, or keeps the results of, by number.
  std::unordered_map<std::uint64_t, TaskPlace> tasks_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t task_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::optional<OutputLayout> plain_ HEADRACE_GUARDED_BY(mutex_);   // of the newest batch
  std::shared_ptr<BufferPool> memory_ HEADRACE_GUARDED_BY(mutex_);  // null until the first result
  std::uint64_t batch_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;       // of the largest; 0: none yet
  bool awaited_ HEADRACE_GUARDED_BY(mutex_) = false;                // the consumer is inside Next()
  // What workers may have mapped, and the number that they know it by.
  std::vector<std::pair<std::weak_ptr<SharedMemory>, std::uint64_t>> memories_
      HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t memory_number_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t row_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;  // of the newest tasks, on average
  std::optional<TransformFailure> lost_ HEADRACE_GUARDED_BY(mutex_);
  Stats stats_ HEADRACE_GUARDED_BY(mutex_);

  std::jthread feeder_;
  std::jthread hearer_;
};

}  // namespace headrace
