#include "base/prng.h"

#include "base/check.h"

namespace headrace {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1

__extension__ using Uint128 = unsigned __int128;

std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t High(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::array<std::uint32_t, 4> PhiloxBlock(std::array<std::uint32_t, 4> counter,
                                         std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

Prng::Prng(std::uint64_t seed, std::uint64_t epoch, RandomStream stream, std::uint64_t item)
    : key_{Low(seed), High(seed)},
      counter_{0, static_cast<std::uint32_t>(stream) | (Low(epoch) << 8), Low(item), High(item)} {
  HEADRACE_CHECK(epoch < kEpochsMax);
}

std::uint32_t Prng::Next32() {
  if (used_ == 4) {
    block_ = PhiloxBlock(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

std::uint64_t Prng::Next64() {
  const std::uint64_t low = Next32();
  return low | (std::uint64_t{Next32()} << 32);
}

std::uint64_t Prng::Below(std::uint64_t bound) {
  HEADRACE_CHECK(bound != 0);
  if (bound <= (std::uint64_t{1} << 32)) {
    std::uint64_t product = Next32() * bound;
    if (Low(product) < bound) {
      const auto reject_below = static_cast<std::uint32_t>((std::uint64_t{1} << 32) % bound);
      while (Low(product) < reject_below) product = Next32() * bound;
    }
    return product >> 32;
  }
  Uint128 product = Uint128{Next64()} * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t reject_below = (0 - bound) % bound;  // 2^64 mod bound
    while (static_cast<std::uint64_t>(product) < reject_below) product = Uint128{Next64()} * bound;
  }
  return static_cast<std::uint64_t>(product >> 64);
}

double Prng::Uniform() { return static_cast<double>(Next64() >> 11) * 0x1.0p-53; }

}  // namespace headrace
