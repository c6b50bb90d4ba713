#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

// A set of places of a stream, whose first and last are found in steps of 64 places a level: 4 for
// 16 M places.
//
// Thread safety: none.
// Memory: a bit a place, and a 63rd of it.
class PlaceSet {
 public:
  // Of places below `count`.
  explicit PlaceSet(std::uint64_t count) {
    do {
      count = (count + 63) / 64;
      levels_.emplace_back(count);
    } while (count > 1);
  }

  [[nodiscard]] bool empty() const { return levels_.back().empty() || levels_.back()[0] == 0; }
  [[nodiscard]] bool Has(std::uint64_t place) const {
    return (levels_[0][place / 64] & Bit(place)) != 0;
  }

  void Insert(std::uint64_t place) {
    for (std::vector<std::uint64_t>& words : levels_) {
      words[place / 64] |= Bit(place);
      place /= 64;
    }
  }
  void Erase(std::uint64_t place) {
    for (std::vector<std::uint64_t>& words : levels_) {
      words[place / 64] &= ~Bit(place);
      if (words[place / 64] != 0) return;
      place /= 64;
    }
  }

  // The set must not be empty.
  [[nodiscard]] std::uint64_t First() const {
    std::uint64_t place = 0;
    for (std::size_t level = levels_.size(); level-- > 0;) {
      place = place * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[level][place]));
    }
    return place;
  }
  [[nodiscard]] std::uint64_t Last() const {
    std::uint64_t place = 0;
    for (std::size_t level = levels_.size(); level-- > 0;) {
      place = place * 64 + 63 - static_cast<std::uint64_t>(std::countl_zero(levels_[level][place]));
    }
    return place;
  }

 private:
  static std::uint64_t Bit(std::uint64_t place) { return std::uint64_t{1} << (place % 64); }

  // The places; then, of each level, which words of the one before are not 0.
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace headrace
