#pragma once

#include <memory>

#include "base/executor.h"
#include "base/memory/buffer_pool.h"
#include "headrace/batch.h"
#include "headrace/status.h"

namespace headrace {

// Where finished batches of one lane go. Called by the engine, one call at a time, in the order of
// the plan. Must not block, and of the engine's methods may call OnTaken() alone.
class BatchSink {
 public:
  virtual ~BatchSink() = default;

  virtual void OnBatch(std::shared_ptr<Batch> batch) = 0;

  // After the last batch: OK at the end of the plan, or the error that ended the run. Called once;
  // not after Stop() or the lane's Leave().
  virtual void OnEnd(Status status) = 0;
};

// A *lane* is one rank's place in the engine of its node: the sink of its batches, and their
// memory.
struct EngineLane {
  BatchSink* sink = nullptr;
  std::shared_ptr<BufferPool> batch_memory;  // for batches in work, ready, held by the consumer
  // Instead of the engine's, for what is read and decoded for this lane alone: near its consumer.
  std::shared_ptr<BufferPool> staging;
  Executor* executor = nullptr;
};

}  // namespace headrace
