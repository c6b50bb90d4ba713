#include "engine/memory/pinned_blocks.h"

#include <iterator>

namespace headrace {

void PinnedBlocks::Add(std::vector<Part>&& parts) {
  MutexLock lock(mutex_);
  for (Part& part : parts) {
    const std::pair<ObjectId, std::uint64_t> place(part.extent.object, part.extent.range.offset);
    parts_.try_emplace(place, std::move(part));
  }
}

std::optional<std::span<const std::byte>> PinnedBlocks::Find(const Extent& extent) const {
  MutexLock lock(mutex_);
  const auto after = parts_.upper_bound({extent.object, extent.range.offset});
  if (after == parts_.begin()) return std::nullopt;
  const Part& part = std::prev(after)->second;
  if (part.extent.object != extent.object || extent.range.end() > part.extent.range.end()) {
    return std::nullopt;
  }
  return part.data.subspan(extent.range.offset - part.extent.range.offset, extent.range.size);
}

}  // namespace headrace
