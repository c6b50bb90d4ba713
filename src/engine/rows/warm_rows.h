#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/decode/sample_decoder.h"
#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/step/step_work.h"

namespace headrace {

// Rows that a task tries to read at once. Afterwards `slots` are those that are done or failed.
struct WarmTask : DecodeTask {
  std::vector<std::pair<std::uint32_t, bool>> missed;  // slot; whether the page cache lacks it
  std::uint64_t missed_bytes = 0;
};

// Receives the results of WarmRows.
class WarmRowsClient {
 public:
  virtual ~WarmRowsClient() = default;

  // The loop: the task has ended. Read the rows that it missed as if they had not been tried.
  virtual void OnWarm(WarmTask& task) = 0;
};

// Reads rows that need no device and little decoding, by tasks that copy a group of them straight
// into the batch: no read of such a row is planned, queued or waited for. This makes small records
// in memory several times cheaper. Stored bytes that are not yet a row, such as numbers to widen,
// are copied to memory of the task first, which stays in the processor's cache.
//
// Memory: for each task that runs at one time, the stored bytes of its rows that are not copies, at
// most 4 * EngineOptions::decode_task_bytes. It is kept for tasks to come.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: the owner waits until nothing is in flight.
class WarmRows {
 public:
  WarmRows(LoopContext& loop, LaneQueues& queues, WarmRowsClient& client)
      : loop_(loop),
        queues_(queues),
        client_(client),
        decoder_(loop.fields, nullptr, loop.verifier) {}

  // Whether rows of the next step are worth a try.
  [[nodiscard]] bool MayTry() const;
  // Whether a row is small enough: for others the bytes dominate the cost, however they are read.
  [[nodiscard]] bool IsSmall(const StepWork& work, std::uint32_t slot) const {
    return RoomBytes(work, slot) <= loop_.options.decode_task_bytes;
  }
  // Tries rows that no tier takes. The client gets a result for each.
  void Try(StepWork& work, std::span<const std::uint32_t> slots);

 private:
  // Memory of a task; not initialised.
  struct Room {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;
  };
  // What a task tries: some rows, and reads of each stored field of each of them.
  struct Tried {
    std::vector<std::uint32_t> slots;
    std::vector<NowRead> reads = {};  // without bytes: not to be read
  };

  void Submit(StepWork& work, std::unique_ptr<WarmTask> task);
  void Read(WarmTask& task);
  void PlanReads(const StepWork& work, std::span<std::byte> room, Tried& tried) const;
  void DecodeAll(WarmTask& task, const Tried& tried) const;
  void Prefetch(const Batch& batch, std::span<const std::uint32_t> slots, std::size_t next) const;
  [[nodiscard]] std::uint64_t RoomBytes(const StepWork& work, std::uint32_t slot) const;
  [[nodiscard]] bool NeedsRoom() const;
  [[nodiscard]] Room TakeRoom(std::uint64_t bytes) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void GiveBack(Room room) HEADRACE_LOCKS_EXCLUDED(mutex_);

  LoopContext& loop_;
  LaneQueues& queues_;
  WarmRowsClient& client_;
  const SampleDecoder decoder_;

  Mutex mutex_;
  std::vector<Room> rooms_ HEADRACE_GUARDED_BY(mutex_);  // that no task has
};

}  // namespace headrace
