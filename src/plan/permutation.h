#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"

namespace headrace {

// Shuffles values as the Fisher-Yates shuffle of a Permutation of as many entries does.
void Shuffle(std::span<std::uint32_t> values, Prng prng);

// A random permutation of [0, size), the same on every platform and release: nodes plan alone and
// must agree. docs/orders.md specifies it to the bit; frozen vectors are tested in C++ and Python.
//
// A small one is a Fisher-Yates shuffle: 4 bytes an entry, made in 10 ns each (in 40 ns where the
// table exceeds the processor's caches), uniform over all permutations as far as the generator is.
// A large one is a keyed bijection: an alternating Feistel network of 8 rounds over the least power
// of two that holds `size`, repeated until the result is below `size`. It has no table and needs
// no time to make.
//
// Thread safety: const methods from any thread.
class Permutation {
 public:
  static constexpr std::uint64_t kTableMax = std::uint64_t{1} << 27;

  // The least size of a keyed bijection is `bijection_from`, at most kTableMax + 1. `item`: of the
  // random numbers, as in Prng.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch, RandomStream stream,
              std::uint64_t bijection_from = kTableMax + 1, std::uint64_t item = 0);

  [[nodiscard]] std::uint64_t size() const { return size_; }

  // The entry at `position`, which must be below size().
  [[nodiscard]] std::uint64_t At(std::uint64_t position) const {
    return table_.empty() ? Walk(position) : table_[position];
  }

 private:
  static constexpr int kRounds = 8;

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
