#pragma once

#include <cstdint>
#include <span>

#include "engine/lanes/lane_queues.h"
#include "engine/loop/loop_context.h"
#include "engine/rows/row_reader.h"
#include "engine/step/step_work.h"
#include "headrace/status.h"

namespace headrace {

// Resizes rows of ragged fields for the sample that they get. A row whose sample comes from another
// source than planned, or that gets another sample, may need memory besides its batch's.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it.
class RaggedRoom {
 public:
  RaggedRoom(const LoopContext& loop, LaneQueues& queues) : loop_(loop), queues_(queues) {}

  // Makes the rows of `slot` as long as their sample needs. Not of rows that storage is read into:
  // their room is larger than they are.
  void Fit(StepWork& work, std::uint32_t slot) const;
  // Gives the row of `piece` as much room as a read of it from storage needs.
  //
  // Errors: ResourceExhausted  the system has no memory; those of the index
  [[nodiscard]] Status MakeRoom(StepWork& work, const RowReader::Piece& piece) const;
  // Gives the rows of inline fields the room of the sample that stands in.
  //
  // Errors: as MakeRoom()
  [[nodiscard]] Status MakeInlineRoom(StepWork& work, std::uint32_t slot) const;

 private:
  Status TakeRoom(StepWork& work, std::uint64_t bytes, std::span<std::byte>& row) const;

  const LoopContext& loop_;
  LaneQueues& queues_;
};

}  // namespace headrace
