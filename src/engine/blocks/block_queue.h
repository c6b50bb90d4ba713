#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "engine/blocks/block_work.h"

namespace headrace {

// The parts of block reads that have their cells and are to be issued: of those that rows wait for
// first, by the step of the first such row, then of the others, by number.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: parts and blocks are the caller's; parts until they are taken.
class BlockQueue {
 public:
  // Behind the other parts of its block.
  void Add(BlockPart& part) { blocks_[KeyOf(*part.block)].push_back(&part); }
  // Before all others: it reads what another part failed to.
  void AddFirst(BlockPart& part) {
    Want(*part.block, 0);
    blocks_[KeyOf(*part.block)].push_front(&part);
  }
  // A row of a step with this deadline waits for the block, whether it has parts here or not.
  void Want(BlockWork& block, std::uint64_t deadline);

  [[nodiscard]] bool empty() const { return blocks_.empty(); }
  // Of this and the next there must be one.
  [[nodiscard]] BlockPart& front() const { return *blocks_.begin()->second.front(); }
  void PopFront();
  void Clear() { blocks_.clear(); }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // BlockWork::wanted, its number

  static Key KeyOf(const BlockWork& block) { return {block.wanted, block.plan.number}; }

  std::map<Key, std::deque<BlockPart*>> blocks_;  // none is empty
};

}  // namespace headrace
