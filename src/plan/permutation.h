#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/prng.h"

namespace headrace {

// A random permutation of [0, size), the same on every platform and release: nodes plan alone and
// must agree. docs/orders.md specifies it to the bit; frozen vectors are tested in C++ and Python.
//
// Up to kTableMax entries it is a Fisher-Yates shuffle: 4 bytes an entry, about 10 ns each to make,
// uniform over all permutations as far as the generator is. Above, it is a keyed bijection: an
// alternating Feistel network of 8 rounds over the least power of two that holds `size`, repeated
// until the result is below `size` (no table; about 100 ns an entry).
//
// Thread safety: const methods from any thread.
class Permutation {
 public:
  static constexpr std::uint64_t kTableMax = std::uint64_t{1} << 27;

  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch, RandomStream stream);

  [[nodiscard]] std::uint64_t size() const { return size_; }

  // The entry at `position`, which must be below size().
  [[nodiscard]] std::uint64_t At(std::uint64_t position) const {
    return table_.empty() ? Walk(position) : table_[position];
  }

  // The keyed bijection for any size, to test its quality on small sizes.
  static Permutation ForTestKeyed(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch,
                                  RandomStream stream);

 private:
  static constexpr int kRounds = 8;

  explicit Permutation(std::uint64_t size) : size_(size) {}
  void MakeTable(Prng prng);
  void MakeKeys(Prng prng);
  [[nodiscard]] std::uint64_t Walk(std::uint64_t position) const;
  [[nodiscard]] std::uint64_t Mix(std::uint64_t value) const;

  std::uint64_t size_;
  std::vector<std::uint32_t> table_;  // empty: keyed bijection
  std::array<std::uint64_t, kRounds> keys_{};
  int low_bits_ = 0;   // of the domain: the half that even rounds change
  int high_bits_ = 0;  // the half that odd rounds change
};

}  // namespace headrace
