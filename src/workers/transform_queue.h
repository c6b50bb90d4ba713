#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/memory/buffer_pool.h"
#include "headrace/batch.h"
#include "headrace/members.h"
#include "headrace/status.h"
#include "workers/batch_work.h"
#include "workers/layout.h"
#include "workers/result_memory.h"
#include "workers/task_sender.h"
#include "workers/transformed_batch.h"
#include "workers/worker_messages.h"
#include "workers/worker_tasks.h"

namespace headrace {

// Batches in transformation, in order: gives them memory, sends their tasks to workers, and decides
// what follows from the replies.
//
// Batches wait for memory and get it in order. The oldest batch gets memory beyond the limit if the
// consumer waits for it while holding all other memory. Without a limit no batch waits.
//
// Thread safety: none.
// Ownership: `memory` and `sink` are the caller's and outlive it.
class TransformQueue {
 public:
  struct Stats {
    std::uint64_t batches = 0;  // taken by the consumer
    std::uint64_t samples = 0;
    std::uint64_t tasks = 0;    // done
    std::uint64_t rows = 0;     // of them
    std::uint64_t busy_ns = 0;  // in the transform, summed over workers
    std::uint64_t ran_ns = 0;   // of it, running or waiting for a processor
    std::uint64_t threads = 0;  // tasks that workers work on at a time
    BufferStats memory;
  };

  // `threads`: of each worker, until it reports the number. `on_change` is called when has_room(),
  // is_ready() or loss() may have changed, except by Clear().
  TransformQueue(ResultForm form, std::size_t workers, ResultMemory& memory, TaskSink& sink,
                 std::function<void()> on_change, std::uint32_t threads = 1)
      : form_(form),
        memory_(memory),
        sink_(sink),
        on_change_(std::move(on_change)),
        tasks_(workers, threads) {}

  [[nodiscard]] bool has_room() const { return works_.size() < memory_.BatchesMax(); }
  void Add(std::shared_ptr<Batch> batch);

  void OnReply(std::size_t worker, WorkerReply reply);
  // Sends nothing more to the worker.
  void Lose(std::size_t worker, TransformFailure failure);
  [[nodiscard]] bool is_lost(std::size_t worker) const { return tasks_.is_lost(worker); }
  // The loss of the first worker that was lost: no more batches come.
  [[nodiscard]] const std::optional<TransformFailure>& loss() const { return tasks_.loss(); }

  // Gives memory to the batches that wait for it, and tasks to idle workers. Call it after a batch
  // has freed its memory.
  void Advance();
  // `awaited`: whether the consumer now waits for the oldest batch.
  void SetAwaited(bool awaited);

  [[nodiscard]] bool empty() const { return works_.empty(); }
  // Whether no worker computes a task, also of a batch that was dropped.
  [[nodiscard]] bool is_idle() const { return !tasks_.is_busy(); }
  // Whether Take() may be called: the oldest batch, or any if order does not matter, is complete or
  // failed.
  [[nodiscard]] bool is_ready() const { return Ready() != works_.end(); }
  TransformTaken Take();
  // Drops all batches. Workers may still have tasks of them.
  void Clear();

  [[nodiscard]] Stats stats() const;

 private:
  using Work = std::shared_ptr<BatchWork>;

  [[nodiscard]] std::deque<Work>::const_iterator Ready() const;
  // All have replied in the round that ended.
  void Settle(BatchWork& work);
  void GiveMemory();
  // Sends waiting tasks to idle workers.
  void Pump();
  // Sends the tasks of a batch that has got memory, unless workers compute first.
  void Write(BatchWork& work);
  // Counts the worker as lost if its message could not be sent.
  void OnSent(std::size_t worker, const Status& sent);
  void Finish(BatchWork& work);
  void ForgetBuffered(BatchWork& work);

  const ResultForm form_;
  ResultMemory& memory_;
  TaskSink& sink_;
  const std::function<void()> on_change_;
  WorkerTasks tasks_;
  std::deque<Work> works_;
  std::optional<OutputLayout> plain_;  // of the newest batch
  bool whole_ = false;                 // rows of a batch were unlike each other
  bool awaited_ = false;
  Stats stats_;  // without `memory`
};

HEADRACE_MEMBERS(TransformQueue::Stats, batches, samples, tasks, rows, busy_ns, ran_ns, threads,
                 memory)

}  // namespace headrace
