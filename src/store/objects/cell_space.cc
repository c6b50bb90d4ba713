#include "store/objects/cell_space.h"

#include <iterator>

#include "base/check.h"
#include "base/units.h"

namespace headrace {

CellSpace::CellSpace(std::uint64_t bytes) {
  HEADRACE_CHECK(bytes > 0 && bytes % kUnitBytes == 0);
  free_.emplace(0, bytes);
}

std::uint64_t CellSpace::ChargedBytes(std::uint64_t bytes) { return RoundUp(bytes, kUnitBytes); }

std::optional<std::uint64_t> CellSpace::Take(std::uint64_t bytes) {
  HEADRACE_CHECK(bytes > 0);
  const std::uint64_t charged = ChargedBytes(bytes);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, size] = *range;
    if (size < charged) continue;
    free_.erase(range);
    if (size > charged) free_.emplace(offset + charged, size - charged);
    taken_.emplace(offset, charged);
    used_bytes_ += charged;
    return offset;
  }
  return std::nullopt;
}

void CellSpace::Release(std::uint64_t offset) {
  const auto cell = taken_.find(offset);
  HEADRACE_CHECK(cell != taken_.end());
  std::uint64_t size = cell->second;
  taken_.erase(cell);
  used_bytes_ -= size;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + size) {
    size += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_.emplace_hint(after, offset, size);
}

}  // namespace headrace
