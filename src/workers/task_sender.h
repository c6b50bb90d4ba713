#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "headrace/batch.h"
#include "headrace/status.h"
#include "ipc/connection.h"
#include "ipc/wire.h"
#include "workers/transformed_batch.h"

namespace headrace {

// Passes tasks on to workers.
//
// Errors, of all that is sent: Unavailable  the worker is gone, as its receiver detects, too
//                              others       it was not sent and never will be: the worker is lost
class TaskSink {
 public:
  // A task by its number, and its slots [first, first + rows) of a batch.
  struct TaskSlots {
    std::uint64_t number = 0;
    std::uint64_t first = 0;
    std::uint64_t rows = 0;
    bool whole = false;  // they are a batch, and its result is one
  };

  virtual ~TaskSink() = default;

  // Asks the worker to transform rows of `in`. `direct`: it writes the results into `out`, which
  // has its layout and memory; otherwise it buffers them.
  virtual Status Compute(std::size_t worker, const TaskSlots& task, const Batch& in,
                         const TransformedBatch& out, bool direct) = 0;
  // Asks the worker to write the results that it buffers into `out`.
  virtual Status Write(std::size_t worker, const TaskSlots& task, const TransformedBatch& out) = 0;
  // Asks the worker to drop the results that it buffers.
  virtual Status Forget(std::size_t worker, std::uint64_t number) = 0;
  // Sends nothing more to the worker.
  virtual void Close(std::size_t worker) = 0;
};

// Sends tasks to workers, and with each task the shared memories that its worker has not mapped
// yet. Sends nothing, which is no error, to a worker that it closed.
//
// Thread safety: none.
// Ownership: `schema` and `workers` are the caller's and outlive it.
class TaskSender final : public TaskSink {
 public:
  using Connections = std::vector<std::unique_ptr<IpcConnection>>;

  TaskSender(std::span<const BatchField> schema, const Connections& workers)
      : schema_(schema), connections_(workers), workers_(workers.size()) {}

  Status Compute(std::size_t worker, const TaskSlots& task, const Batch& in,
                 const TransformedBatch& out, bool direct) override;
  Status Write(std::size_t worker, const TaskSlots& task, const TransformedBatch& out) override;
  Status Forget(std::size_t worker, std::uint64_t number) override;
  void Close(std::size_t worker) override { workers_[worker].closed = true; }

 private:
  struct Worker {
    bool closed = false;
    std::vector<std::uint64_t> memories;  // numbers of those it was sent
  };

  std::uint64_t NumberOf(const std::shared_ptr<SharedMemory>& memory);
  // Sends `body` and the memories that the worker has to map for it.
  Status Send(std::size_t worker, std::span<const std::shared_ptr<SharedMemory>> memories,
              const WireWriter& body);

  const std::span<const BatchField> schema_;
  const Connections& connections_;
  std::vector<Worker> workers_;
  // Memories that workers may have mapped, with their numbers in messages.
  std::vector<std::pair<std::weak_ptr<SharedMemory>, std::uint64_t>> memories_;
  std::uint64_t memory_number_ = 0;
};

}  // namespace headrace
