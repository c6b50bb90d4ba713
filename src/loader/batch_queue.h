#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "engine/lanes/lane_parts.h"
#include "headrace/batch.h"
#include "headrace/status.h"

namespace headrace {

// Queue of batches from an engine to a consumer that blocks. The engine bounds its size:
// EngineOptions::batches_max.
//
// Thread safety: the engine calls OnBatch() and OnEnd(); any thread may call the other methods.
class BatchQueue final : public BatchSink {
 public:
  void OnBatch(std::shared_ptr<Batch> batch) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnEnd(Status status) override HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Drops the batches that were not taken. Ends the queue as Cancelled, unless it has ended
  // already.
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

  // True if Take() would return at once.
  [[nodiscard]] bool ready() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Returns the next batch. Waits at most `timeout_ns` for it (negative: no limit). After the last
  // batch, returns how the plan ended.
  Result<TakenBatch> Take(std::int64_t timeout_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Batch>> batches_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
