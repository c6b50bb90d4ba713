#include "engine/blocks/block_queue.h"

#include <utility>

namespace headrace {

void BlockQueue::Want(BlockWork& block, std::uint64_t deadline) {
  if (deadline >= block.wanted) return;
  auto parts = blocks_.extract(KeyOf(block));
  block.wanted = deadline;
  if (parts.empty()) return;
  parts.key() = KeyOf(block);
  blocks_.insert(std::move(parts));
}

void BlockQueue::PopFront() {
  const auto first = blocks_.begin();
  first->second.pop_front();
  if (first->second.empty()) blocks_.erase(first);
}

}  // namespace headrace
