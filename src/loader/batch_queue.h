#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/engine.h"

namespace headrace {

// Where an engine leaves its batches for a consumer that blocks. Its size is bounded by the engine:
// EngineOptions::batches_max.
//
// Thread safety: OnBatch() and OnEnd() from the engine, Take() from any thread.
class BatchQueue final : public BatchSink {
 public:
  struct Taken {
    std::shared_ptr<Batch> batch;  // null: nothing came in time, or the plan ended
    bool ended = false;
  };

  void OnBatch(std::shared_ptr<Batch> batch) override HEADRACE_LOCKS_EXCLUDED(mutex_);
  void OnEnd(Status status) override HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Drops what was not taken, and ends, as Cancelled, unless it has ended.
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Whether Take() would return at once.
  [[nodiscard]] bool ready() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  // The next batch; waits `timeout_ns` for it at most (negative: as long as it takes). After the
  // last: how the plan ended.
  Result<Taken> Take(std::int64_t timeout_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Batch>> batches_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
