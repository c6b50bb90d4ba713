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
  friend class EntryFinder;
  static constexpr int kRounds = 8;

  void MakeTable(Prng prng);
  void MakeKeys(Prng prng);
  [[nodiscard]] std::uint64_t Walk(std::uint64_t position) const;
  [[nodiscard]] std::uint64_t Mix(std::uint64_t value) const;
  // The position of an entry of a keyed bijection.
  [[nodiscard]] std::uint64_t WalkBack(std::uint64_t value) const;

  std::uint64_t size_;
  std::vector<std::uint32_t> table_;  // empty: keyed bijection
  std::array<std::uint64_t, kRounds> keys_{};
  int low_bits_ = 0;   // of the domain: the half that even rounds change
  int high_bits_ = 0;  // the half that odd rounds change
};

// Finds the positions of some entries in permutations of one size, each a Permutation(size, seed,
// epoch, stream), and makes no permutation for it.
//
// Cost: of a shuffle, about 10 ns an entry of the permutation, for the random numbers, and some
// cache misses for each entry that is looked for; of a keyed bijection, that of Permutation::At().
// Memory: 4.1 bytes an entry of a shuffle; none for a keyed bijection.
// Thread safety: none.
class EntryFinder {
 public:
  // `bijection_from` as for a Permutation; size below 2^32.
  explicit EntryFinder(std::uint64_t size,
                       std::uint64_t bijection_from = Permutation::kTableMax + 1);

  // Stores in `positions` where each of `entries` is; no entry twice.
  void Find(std::uint64_t seed, std::uint64_t epoch, RandomStream stream,
            std::span<const std::uint32_t> entries, std::span<std::uint32_t> positions);

 private:
  void Follow(Prng prng, std::span<const std::uint32_t> entries,
              std::span<std::uint32_t> positions);
  [[nodiscard]] bool Marked(std::uint64_t place) const {
    return (marks_[place / 64] >> (place % 64) & 1) != 0;
  }
  void Flip(std::uint64_t place) { marks_[place / 64] ^= std::uint64_t{1} << (place % 64); }

  const std::uint64_t size_;
  const std::uint64_t bijection_from_;
  // While a shuffle is followed: the places of the entries that are looked for, and which of them
  // is at each.
  std::vector<std::uint64_t> marks_;
  std::vector<std::uint32_t> which_;
};

}  // namespace headrace
