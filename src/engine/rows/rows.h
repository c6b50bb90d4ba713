#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/rows/row_decoder.h"
#include "engine/rows/row_fetcher.h"
#include "engine/step/step_work.h"
#include "headrace/status.h"

namespace headrace {

// The rows of the steps in work, from bytes to done: decodes them; if that fails and no other
// source has the sample, another sample stands in for it, or the step fails.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
// Shutdown: the owner waits until nothing is in flight.
class Rows final : public RowFetcherClient, public RowDecoderClient {
 public:
  // `fetcher` brings the bytes. Its client is this.
  Rows(LoopContext& loop, LaneQueues& queues, const DecodeParts& parts, RowFetcher& fetcher)
      : loop_(loop), fetcher_(fetcher), decoder_(loop, queues, parts, *this) {}

  // A lane may have more decodes at once than before.
  void StartDecodes(std::uint32_t lane) { decoder_.Start(lane); }
  // The run has ended: begins nothing more.
  void DropQueue() { decoder_.DropLarge(); }

  void OnRead(StepWork& work, std::span<const std::uint32_t> slots) override {
    decoder_.Submit(work, slots);
  }
  void OnReadFailed(StepWork& work, std::uint32_t slot, Status status) override;
  void DecodeNow(DecodeTask& task) override { decoder_.Run(task); }
  void InsertRow(DecodeTask& task, std::uint32_t slot,
                 std::vector<std::span<const std::byte>> parts) override {
    fetcher_.Insert(task, slot, std::move(parts));
  }
  void OnDecoded(DecodeTask& task) override;
  void OnInserted(RowRef row) override;

 private:
  void Fail(StepWork& work, std::uint32_t slot, const Status& status);
  void EndRow(StepWork& work, std::uint32_t slot);
  [[nodiscard]] std::string Describe(const StepWork& work, std::uint32_t slot) const;

  LoopContext& loop_;
  RowFetcher& fetcher_;
  RowDecoder decoder_;
};

}  // namespace headrace
