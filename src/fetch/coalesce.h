#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/ids.h"

namespace headrace {

// Which pieces of data become one read.
struct CoalesceLimits {
  std::uint64_t gap_bytes = 0;  // pieces this near are one read ...
  std::uint64_t bytes_max = 0;  // ... up to this size, or that of its largest sample
  // ... and to so many times the bytes of its pieces; 0: any number.
  std::uint64_t growth_max = 0;
};

// Whether `a` lies before `b`: by object, then by offset.
inline bool LiesBefore(const Extent& a, const Extent& b) {
  return a.object != b.object ? a.object < b.object : a.range.offset < b.range.offset;
}

// Calls visit(extent, pieces) for each read of `pieces`, which are sorted by LiesBefore(); `extent`
// covers its pieces. extent_of(piece) says where a piece lies; alone(piece): it is a read of its
// own. one(piece, next): both are of one sample, which is to come in one read if only gaps allow.
template <typename Piece, typename ExtentOf, typename Alone, typename One, typename Visit>
void Coalesce(std::span<Piece> pieces, const CoalesceLimits& limits, ExtentOf extent_of,
              Alone alone, One one, Visit visit) {
  for (std::size_t begin = 0; begin < pieces.size();) {
    Extent read = extent_of(pieces[begin]);
    std::uint64_t wanted = read.range.size;  // bytes of its pieces, each counted once
    std::size_t end = begin + 1;
    for (; end < pieces.size() && !alone(pieces[begin]) && !alone(pieces[end]); ++end) {
      const Extent& next = extent_of(pieces[end]);
      const std::uint64_t read_end = std::max(read.range.end(), next.range.end());
      const std::uint64_t wanted_with =
          wanted + (read_end - std::clamp(next.range.offset, read.range.end(), read_end));
      if (next.object != read.object || next.range.offset > read.range.end() + limits.gap_bytes) {
        break;
      }
      const bool fits = read_end - read.range.offset <= limits.bytes_max;
      const bool grows =
          limits.growth_max != 0 && read_end - read.range.offset > limits.growth_max * wanted_with;
      if ((!fits || grows) && !one(pieces[end - 1], pieces[end])) break;
      read.range.size = read_end - read.range.offset;
      wanted = wanted_with;
    }
    visit(read, pieces.subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace headrace
