#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace headrace {

// Which parts of a memory are taken: ranges of whole pages, each given back as a whole. Takes the
// lowest range that fits, so that the pages at the end are touched only when they are needed.
//
// Thread safety: none; one thread drives. Cost: O(n) for n free ranges.
class CellSpace {
 public:
  static constexpr std::uint64_t kUnitBytes = 4096;

  // `bytes` must be whole units.
  explicit CellSpace(std::uint64_t bytes);

  // The memory of a cell of `bytes`, not 0.
  static std::uint64_t ChargedBytes(std::uint64_t bytes);

  // Where a new cell of `bytes`, not 0, begins; std::nullopt: no free range is as large.
  std::optional<std::uint64_t> Take(std::uint64_t bytes);
  // `offset` as Take() returned it.
  void Release(std::uint64_t offset);

  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;   // bytes by offset; no two touch
  std::map<std::uint64_t, std::uint64_t> taken_;  // bytes by offset
  std::uint64_t used_bytes_ = 0;
};

}  // namespace headrace
