#include "workers/worker_tasks.h"

#include <algorithm>
#include <utility>

namespace headrace {

void WorkerTasks::SetReady(std::size_t worker, std::uint32_t threads) {
  workers_[worker].ready = true;
  workers_[worker].threads = threads;
}

std::uint64_t WorkerTasks::threads() const {
  std::uint64_t threads = 0;
  for (const Worker& worker : workers_) threads += worker.threads;
  return threads;
}

bool WorkerTasks::is_busy() const {
  return std::ranges::any_of(
      workers_, [](const Worker& each) { return !each.lost && !each.computing.empty(); });
}

std::optional<std::size_t> WorkerTasks::IdleWorker() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (!worker.ready || worker.lost) continue;
    if (worker.computing.size() >= std::min(worker.threads + kTasksWaiting, kTasksMax)) continue;
    if (!best.has_value() || worker.computing.size() < workers_[*best].computing.size()) best = i;
  }
  return best;
}

void WorkerTasks::Assign(std::size_t worker, const Held& held) {
  held.task->worker = worker;
  held.task->number = ++number_;
  held_.emplace(number_, held);
  workers_[worker].computing.push_back(number_);
}

std::optional<WorkerTasks::Held> WorkerTasks::Answer(std::size_t worker, std::uint64_t number) {
  const auto found = held_.find(number);
  if (found == held_.end() || found->second.task->worker != worker) return std::nullopt;
  std::erase(workers_[worker].computing, number);
  return found->second;
}

std::uint64_t WorkerTasks::TaskRows(std::uint64_t rows) const {
  const auto share = [&](std::uint64_t tasks_a_thread) {
    const std::uint64_t tasks = tasks_a_thread * threads();
    return std::max<std::uint64_t>((rows + tasks - 1) / tasks, 1);
  };
  if (row_ns_ == 0) return share(2);
  return std::clamp((kTaskNs + row_ns_ - 1) / row_ns_, share(8), share(1));
}

void WorkerTasks::Learn(std::uint64_t rows, std::uint64_t busy_ns) {
  const std::uint64_t row_ns = std::max<std::uint64_t>(busy_ns / rows, 1);
  row_ns_ = row_ns_ == 0 ? row_ns : (7 * row_ns_ + row_ns) / 8;
}

void WorkerTasks::Lose(std::size_t worker, TransformFailure failure) {
  Worker& each = workers_[worker];
  each.lost = true;
  if (loss_.has_value()) return;
  failure.worker = worker;
  if (!each.ready) failure.kind = TransformFailure::Kind::kStart;
  for (const std::uint64_t number : each.computing) {
    const auto& [work, task] = held_.at(number);
    failure.tasks.push_back(work->out().SamplesAt(task->first, task->rows));
  }
  loss_ = std::move(failure);
}

}  // namespace headrace
