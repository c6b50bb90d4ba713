#pragma once

#include <deque>
#include <functional>

#include "engine/blocks/block_parts.h"
#include "engine/blocks/block_work.h"
#include "engine/loop/loop_context.h"
#include "headrace/status.h"

namespace headrace {

// Requests the parts of parcels from other nodes, in the order of block reads, as far as there is
// memory for them.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it; parts, until Drop().
class ParcelParts {
 public:
  ParcelParts(LoopContext& loop, const BlockParts& parts) : loop_(loop), parts_(parts) {}

  void Queue(BlockPart& part) { queued_.push_back(&part); }
  // Calls copy(part) for those that need no memory.
  void Issue(const std::function<void(BlockPart&)>& copy);
  // A part failed: `part` gets the failures of its samples, or these are requested one by one. If
  // its home is lost, or has ended its run, the rows that need them fail, after all earlier steps:
  // a loop that ends before them still gets those.
  void OnFailed(BlockPart& part, const Status& why);
  void Drop() { queued_.clear(); }

 private:
  LoopContext& loop_;
  const BlockParts& parts_;
  std::deque<BlockPart*> queued_;
};

}  // namespace headrace
