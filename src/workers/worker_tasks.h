#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "workers/batch_work.h"
#include "workers/transformed_batch.h"

namespace headrace {

// The tasks that each worker has, or whose results it buffers; the number of rows for a task; the
// worker that was lost first, and its tasks.
//
// A task takes about kTaskNs: long enough to make messages cheap, short enough that all workers
// finish a batch at about the same time.
//
// Thread safety: none.
class WorkerTasks {
 public:
  // Tasks beyond one for each thread of a worker: they wait in the worker, or in its socket.
  static constexpr std::size_t kTasksWaiting = 1;
  // A socket has room for this many small messages while its worker does not receive.
  static constexpr std::size_t kTasksMax = 128;
  // The approximate duration of a task.
  static constexpr std::uint64_t kTaskNs = 1'000'000;

  // A task, and its batch, which lives as long as a worker may use its memory.
  struct Held {
    std::shared_ptr<BatchWork> work;
    BatchWork::Task* task = nullptr;
  };

  // `threads`: of each worker, until it reports the number.
  explicit WorkerTasks(std::size_t workers, std::uint32_t threads = 1)
      : workers_(workers, Worker{.threads = threads}) {}

  // Sets the number of tasks that the worker runs at a time.
  void SetReady(std::size_t worker, std::uint32_t threads);
  // Tasks that all workers together work on at a time.
  [[nodiscard]] std::uint64_t threads() const;
  // Whether a worker that was not lost computes a task.
  [[nodiscard]] bool is_busy() const;
  // The worker with the fewest tasks, if one may have another.
  [[nodiscard]] std::optional<std::size_t> IdleWorker() const;
  // Numbers the task, which the worker computes next.
  void Assign(std::size_t worker, const Held& held);
  // The task about which the worker sent a reply; nothing if it has no such task.
  std::optional<Held> Answer(std::size_t worker, std::uint64_t number);
  // The worker has no results of the task any more.
  void Release(std::uint64_t number) { held_.erase(number); }

  // Rows of the tasks of a batch of `rows`.
  [[nodiscard]] std::uint64_t TaskRows(std::uint64_t rows) const;
  // Records the time that a task of `rows` took.
  void Learn(std::uint64_t rows, std::uint64_t busy_ns);

  // Adds the worker's tasks to `failure`.
  void Lose(std::size_t worker, TransformFailure failure);
  [[nodiscard]] bool is_lost(std::size_t worker) const { return workers_[worker].lost; }
  // The first.
  [[nodiscard]] const std::optional<TransformFailure>& loss() const { return loss_; }

 private:
  struct Worker {
    std::uint32_t threads = 1;
    bool ready = false;
    bool lost = false;
    std::deque<std::uint64_t> computing;  // numbers of tasks, the oldest first
  };

  std::vector<Worker> workers_;
  std::unordered_map<std::uint64_t, Held> held_;  // by number
  std::uint64_t number_ = 0;
  std::uint64_t row_ns_ = 0;  // of the newest tasks, on average; 0: none yet
  std::optional<TransformFailure> loss_;
};

}  // namespace headrace
