#include "loader/batch_queue.h"

#include <utility>

namespace headrace {

void BatchQueue::OnBatch(std::shared_ptr<Batch> batch) {
  MutexLock lock(mutex_);
  batches_.push_back(std::move(batch));
  changed_.NotifyAll();
}

void BatchQueue::OnEnd(Status status) {
  MutexLock lock(mutex_);
  end_ = std::move(status);
  changed_.NotifyAll();
}

void BatchQueue::Close() {
  std::deque<std::shared_ptr<Batch>> dropped;  // Outlives the lock: their memory goes back.
  MutexLock lock(mutex_);
  dropped.swap(batches_);
  if (!end_.has_value()) end_ = Status(StatusCode::kCancelled, "the run was stopped");
  changed_.NotifyAll();
}

bool BatchQueue::ready() const {
  MutexLock lock(mutex_);
  return !batches_.empty() || end_.has_value();
}

Result<TakenBatch> BatchQueue::Take(std::int64_t timeout_ns) {
  MutexLock lock(mutex_);
  while (batches_.empty() && !end_.has_value()) {
    if (timeout_ns < 0) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitFor(mutex_, timeout_ns)) {
      break;
    }
  }
  if (!batches_.empty()) {
    TakenBatch taken{.batch = std::move(batches_.front())};
    batches_.pop_front();
    return taken;
  }
  if (!end_.has_value()) return TakenBatch{};
  if (!end_->ok()) return *end_;
  return TakenBatch{.ended = true};
}

}  // namespace headrace
