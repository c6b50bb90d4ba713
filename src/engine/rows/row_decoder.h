#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/cell_pool.h"
#include "engine/decode/sample_decoder.h"
#include "engine/lanes/lane_policy.h"
#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/memory/scratch_budget.h"
#include "engine/step/step_work.h"

namespace headrace {

// Receives the results of a RowDecoder.
class RowDecoderClient {
 public:
  virtual ~RowDecoderClient() = default;

  // A task: the row is decoded, and a tier is to take `parts`, the fields of its entry. Only those
  // that lie as they are stored outlive the call.
  virtual void InsertRow(DecodeTask& task, std::uint32_t slot,
                         std::vector<std::span<const std::byte>> parts) = 0;
  // The loop: the task is done, except for the rows in task.failures and task.large.
  virtual void OnDecoded(DecodeTask& task) = 0;
};

// The inputs of decoding rows.
struct DecodeParts {
  std::shared_ptr<CellPool> residents;     // null: no row has cells
  std::shared_ptr<ScratchBudget> scratch;  // null: no limit
  DecodeObserver* observer = nullptr;      // null: nobody wants to know
};

// Decodes rows whose bytes are in memory, by tasks, as many of a lane as its share has.
//
// A decode that needs much scratch memory waits until there is some, the oldest step's first.
// Nothing else waits for it, and a decode that has its memory needs only a thread. If there can
// never be enough, it is an error of the sample.
//
// Thread safety: called by the engine's loop, one call at a time; Run() from any thread.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: the owner waits until nothing is in flight.
class RowDecoder {
 public:
  RowDecoder(LoopContext& loop, LaneQueues& queues, DecodeParts parts, RowDecoderClient& client)
      : loop_(loop),
        queues_(queues),
        parts_(std::move(parts)),
        client_(client),
        decoder_(loop.fields, parts_.residents.get(), loop.verifier) {}

  // Cuts the rows into tasks large enough to be worth a thread each.
  void Submit(StepWork& work, std::span<const std::uint32_t> slots);
  // Hands tasks of the lane to its executor, as many as its share has.
  void Start(std::uint32_t lane);
  // Decodes the task's rows on this thread.
  void Run(DecodeTask& task);
  // Counts what a task did.
  void Count(const DecodeTask& task);

  // A row was postponed: its decode needs this many bytes of scratch memory.
  void AddLarge(RowRef row, std::uint64_t bytes);
  // Gives scratch memory to the large decodes that are due first.
  void StartLarge();
  void DropLarge() { large_.clear(); }

 private:
  using GatheredBytes = SampleDecoder::GatheredBytes;

  [[nodiscard]] std::uint64_t StoredBytes(const StepWork& work, std::uint32_t slot) const;
  void OnRun(std::unique_ptr<DecodeTask> task);
  void DecodeRow(DecodeTask& task, std::uint32_t slot, GatheredBytes& scratch);
  [[nodiscard]] std::vector<std::span<const std::byte>> PartsOf(const StepWork& work,
                                                                std::uint32_t slot) const;

  LoopContext& loop_;
  LaneQueues& queues_;
  const DecodeParts parts_;
  RowDecoderClient& client_;
  const SampleDecoder decoder_;
  std::atomic<int> decoding_ = 0;  // tasks that run
  // Rows that wait for scratch memory, with the bytes that each needs, by their step's deadline.
  std::multimap<std::uint64_t, std::pair<RowRef, std::uint64_t>> large_;
};

}  // namespace headrace
