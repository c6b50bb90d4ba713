#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

// Rows by the number of their free tokens. Thread safety: none.
class FreeRows {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit FreeRows(std::uint32_t row_tokens) : last_(std::size_t{row_tokens} + 1, kNone) {
    // Level 0 has a bit for each number of free tokens; each further level one for each word of
    // the level below that has one.
    std::size_t bits = last_.size();
    do {
      bits = (bits + 63) / 64;
      levels_.emplace_back(bits);
    } while (bits > 1);
  }

  // Rows are numbered from 0, and each is added at most once at a time.
  void Add(std::uint32_t row, std::uint32_t free) {
    if (row >= before_.size()) before_.resize(std::size_t{row} + 1);
    before_[row] = last_[free];
    last_[free] = row;
    std::size_t bit = free;
    for (std::vector<std::uint64_t>& level : levels_) {
      level[bit / 64] |= std::uint64_t{1} << (bit % 64);
      bit /= 64;
    }
  }

  // The least number of free tokens, `tokens` or more, that a row has; kNone: none has.
  [[nodiscard]] std::uint32_t LeastFree(std::uint32_t tokens) const {
    std::size_t bit = tokens;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const std::size_t word = bit / 64;
      if (word >= levels_[level].size()) return kNone;
      const std::uint64_t set = levels_[level][word] >> (bit % 64);
      if (set != 0) return Lowest(level, bit + static_cast<std::size_t>(std::countr_zero(set)));
      bit = word + 1;
    }
    return kNone;
  }

  // Takes the row that was added last of those with so many free tokens, which must exist.
  std::uint32_t Take(std::uint32_t free) {
    const std::uint32_t row = last_[free];
    last_[free] = before_[row];
    std::size_t bit = free;
    for (std::size_t level = 0; level < levels_.size() && last_[free] == kNone; ++level) {
      levels_[level][bit / 64] &= ~(std::uint64_t{1} << (bit % 64));
      if (levels_[level][bit / 64] != 0) break;
      bit /= 64;
    }
    return row;
  }

 private:
  [[nodiscard]] std::uint32_t Lowest(std::size_t level, std::size_t bit) const {
    while (level-- > 0) {
      bit = bit * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][bit]));
    }
    return static_cast<std::uint32_t>(bit);
  }

  std::vector<std::uint32_t> last_;    // of each number of free tokens: the row added last
  std::vector<std::uint32_t> before_;  // of each row: the one added before it, of the same number
  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace headrace
