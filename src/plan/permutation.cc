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

}  // namespace headrace
