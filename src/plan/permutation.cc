#include "plan/permutation.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

// The round function: two multiplications with the constants of SplitMix64 (Steele et al.,
// OOPSLA'14).
std::uint64_t Round(std::uint64_t value, std::uint64_t key) {
  std::uint64_t mixed = (value + key) * 0xbf58476d1ce4e5b9u;
  mixed ^= mixed >> 29;
  mixed *= 0x94d049bb133111ebu;
  return mixed ^ (mixed >> 32);
}

std::uint64_t Mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

void Shuffle(std::span<std::uint32_t> values, Prng prng) {
  // Draws some entries ahead and prefetches them: they are far apart.
  std::array<std::uint64_t, 64> others;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  for (std::uint64_t left = values.size(); left > 1;) {
    const std::uint64_t count = std::min<std::uint64_t>(others.size(), left - 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      others[i] = prng.Below(left - i);
      __builtin_prefetch(&values[others[i]], 1);
    }
    for (std::uint64_t i = 0; i < count; ++i) std::swap(values[--left], values[others[i]]);
  }
}

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch,
                         RandomStream stream, std::uint64_t bijection_from, std::uint64_t item)
    : size_(size) {
  HEADRACE_CHECK(bijection_from <= kTableMax + 1);
  if (size < bijection_from) {
    MakeTable(Prng(seed, epoch, stream, item));
  } else {
    MakeKeys(Prng(seed, epoch, stream, item));
  }
}

void Permutation::MakeTable(Prng prng) {
  table_.resize(size_);
  std::iota(table_.begin(), table_.end(), 0u);
  Shuffle(table_, prng);
}

void Permutation::MakeKeys(Prng prng) {
  HEADRACE_CHECK(size_ > 0 && size_ <= std::uint64_t{1} << 62);
  const int bits = std::max(2, static_cast<int>(std::bit_width(size_ - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  for (std::uint64_t& key : keys_) key = prng.Next64();
}

std::uint64_t Permutation::Mix(std::uint64_t value) const {
  std::uint64_t low = value & Mask(low_bits_);
  std::uint64_t high = value >> low_bits_;
  for (int round = 0; round < kRounds; round += 2) {
    low ^= Round(high, keys_[static_cast<std::size_t>(round)]) & Mask(low_bits_);
    high ^= Round(low, keys_[static_cast<std::size_t>(round) + 1]) & Mask(high_bits_);
  }
  return high << low_bits_ | low;
}

std::uint64_t Permutation::Walk(std::uint64_t position) const {
  HEADRACE_CHECK(position < size_);
  std::uint64_t value = Mix(position);
  while (value >= size_) value = Mix(value);  // A bijection on the domain: comes back below.
  return value;
}

std::uint64_t Permutation::WalkBack(std::uint64_t value) const {
  HEADRACE_CHECK(value < size_);
  do {
    std::uint64_t low = value & Mask(low_bits_);
    std::uint64_t high = value >> low_bits_;
    for (int round = kRounds - 2; round >= 0; round -= 2) {
      high ^= Round(low, keys_[static_cast<std::size_t>(round) + 1]) & Mask(high_bits_);
      low ^= Round(high, keys_[static_cast<std::size_t>(round)]) & Mask(low_bits_);
    }
    value = high << low_bits_ | low;
  } while (value >= size_);
  return value;
}

EntryFinder::EntryFinder(std::uint64_t size, std::uint64_t bijection_from)
    : size_(size), bijection_from_(bijection_from) {
  HEADRACE_CHECK(size <= 0xffff'ffff);
  if (size >= bijection_from) return;
  marks_.resize(size / 64 + 1);
  which_.resize(size);
}

void EntryFinder::Find(std::uint64_t seed, std::uint64_t epoch, RandomStream stream,
                       std::span<const std::uint32_t> entries, std::span<std::uint32_t> positions) {
  HEADRACE_CHECK(entries.size() == positions.size());
  if (size_ < bijection_from_) {
    Follow(Prng(seed, epoch, stream), entries, positions);
    return;
  }
  const Permutation bijection(size_, seed, epoch, stream, bijection_from_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    positions[i] = static_cast<std::uint32_t>(bijection.WalkBack(entries[i]));
  }
}

// Takes the steps of Shuffle(), and looks at those that move one of `entries`.
void EntryFinder::Follow(Prng prng, std::span<const std::uint32_t> entries,
                         std::span<std::uint32_t> positions) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    HEADRACE_CHECK(entries[i] < size_ && !Marked(entries[i]));
    Flip(entries[i]);
    which_[entries[i]] = static_cast<std::uint32_t>(i);
  }
  std::array<std::uint64_t, 64> others{};
  for (std::uint64_t left = size_; left > 0;) {
    const std::uint64_t count = std::min<std::uint64_t>(others.size(), left);
    for (std::uint64_t i = 0; i < count; ++i) {
      others[i] = left - i > 1 ? prng.Below(left - i) : 0;
      __builtin_prefetch(&marks_[others[i] / 64]);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      // Entries `left` and `other` change places; that at `left` stays there.
      const std::uint64_t other = others[i];
      --left;
      const bool leaves = Marked(left);
      const bool comes = Marked(other);
      if (!leaves && !comes) continue;
      if (comes) positions[which_[other]] = static_cast<std::uint32_t>(left);
      if (left != other && leaves) which_[other] = which_[left];
      if (left == other || leaves != comes) Flip(other);
      if (left != other && leaves) Flip(left);
    }
  }
}

}  // namespace headrace
