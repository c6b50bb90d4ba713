#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/batch.h"
#include "workers/layout.h"
#include "workers/transformed_batch.h"
#include "workers/worker_messages.h"

namespace headrace {

enum class BatchPhase : std::uint8_t {
  kComputing,  // workers compute, and write if the batch has memory; else they buffer the results
  kWaiting,    // for memory; workers have no task of this batch
  kWriting,    // workers write what they buffered
  kDropped,    // the batch is no longer needed
  kComplete,
};

// A batch in transformation: the tasks that it is divided into, the workers' replies, and the
// batch or failure that it becomes. Workers answer for all tasks, in one round or in two:
//
//   layout unknown  kComputing, Settle(), kWaiting, OnMemory(), kWriting, Settle(), Finish()
//   layout known    kWaiting, OnMemory(), kComputing, Settle(), Finish(); or, if it proves wrong,
//                   on from the first Settle() as above
//
// With RaggedRows::kWhole a batch whose rows differ in form is computed again, as one task:
// Settle(), ComputeWhole(), then as if its layout were unknown.
//
// Thread safety: none.
// Ownership: it lives until all tasks that were sent are answered: workers use its memory.
class BatchWork {
 public:
  // Rows of the batch, for one worker.
  struct Task {
    std::uint64_t first = 0;  // slot
    std::uint64_t rows = 0;
    bool whole = false;        // all rows: the result is the batch
    std::uint64_t number = 0;  // of the message that sent it
    std::size_t worker = 0;
    bool written = false;                // its results lie in the batch
    std::optional<TaskShapes> buffered;  // shapes of results that the worker buffers
    std::string objects;
  };

  // `task_rows`: the most rows of a task; std::nullopt: the batch is one task, whose result it is.
  BatchWork(std::shared_ptr<Batch> in, std::optional<std::uint64_t> task_rows);

  // Predicts the layout of the rows. Call it before the first task is sent.
  void Expect(OutputLayout layout);

  [[nodiscard]] BatchPhase phase() const { return phase_; }
  [[nodiscard]] const Batch& in() const { return *in_; }  // Not after Finish().
  [[nodiscard]] TransformedBatch& out() { return *out_; }
  [[nodiscard]] bool has_memory() const { return !out_->memory.bytes().empty(); }

  // The next task to compute; null: there is none now.
  Task* NextTask();
  // out() has got memory. Returns the tasks to write; none if workers compute first.
  std::span<Task> OnMemory();
  // Whether this reply is valid now, for a task that was sent.
  [[nodiscard]] bool Awaits(const Task& task, ReplyMessage kind) const;
  // Takes such a reply. Returns true if all have replied in this round: then call Settle().
  bool OnReply(Task& task, WorkerReply reply);
  // Returns the phase that follows: kComplete: call Finish(); kWaiting: the batch waits for memory;
  // kComputing: call ComputeWhole(), after TakeBuffered().
  BatchPhase Settle(RaggedRows ragged);
  // Drops what was computed: the batch becomes one task.
  void ComputeWhole();

  // The results form no batch; `text` is the reason, found at `slot`. Call Finish() next.
  void Fail(std::string text, std::uint64_t slot);
  void Drop() { phase_ = BatchPhase::kDropped; }
  // Tasks whose workers must drop the results that they buffer, each once. None while workers
  // write.
  std::vector<Task*> TakeBuffered();
  void Finish();

  // Call it once, when the batch is complete.
  TransformTaken Take();

 private:
  void Divide(std::optional<std::uint64_t> task_rows);
  // The one in that slot; none of a batch without samples.
  [[nodiscard]] TaskSamples SampleAt(std::uint64_t slot) const;

  BatchPhase phase_ = BatchPhase::kComputing;
  bool unlike_ = false;        // a worker said that its rows differ in form
  std::shared_ptr<Batch> in_;  // null once it is complete
  std::unique_ptr<TransformedBatch> out_;
  std::vector<Task> tasks_;  // by slot
  std::size_t sent_ = 0;     // tasks sent to workers
  std::size_t open_ = 0;     // tasks without a reply in this round
  std::optional<TransformFailure> failure_;
};

}  // namespace headrace
