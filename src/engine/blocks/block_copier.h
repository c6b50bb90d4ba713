#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/cell_pool.h"
#include "engine/blocks/block_work.h"
#include "engine/loop/loop_context.h"
#include "headrace/status.h"

namespace headrace {

// Copies the samples of a part, whose bytes were read, to their cells, and inserts them into the
// tiers that the plan assigns. Runs in tasks.
//
// Thread safety: every method may be called from any thread, one at a time for a part.
// Ownership: the arguments of the constructor outlive it.
class BlockCopier {
 public:
  // `cells` may be null: then there is no part.
  BlockCopier(const LoopContext& loop, CellPool* cells) : loop_(loop), cells_(cells) {}

  // Verifies the samples while their bytes are hot, and copies them. Adds to part.failures.
  void CopyToCells(BlockPart& part) const;
  // Call it next. Inserts into tiers on disk continue: part.ends_left counts them, and the loop
  // calls `inserted` once for each.
  void CopyToTiers(BlockPart& part, const std::function<void()>& inserted) const;

 private:
  Status Copy(const BlockPart& part, const BlockPiece& piece,
              std::vector<std::byte>& scratch) const;

  const LoopContext& loop_;
  CellPool* const cells_;
};

}  // namespace headrace
