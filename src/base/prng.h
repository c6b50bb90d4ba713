#pragma once

// The one source of randomness: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). A number depends only on seed, epoch, purpose, item and position: it is the
// same on every node, with any number of threads, after any resume. Specified to the bit in
// docs/orders.md; frozen in tests.

#include <array>
#include <cstdint>

namespace headrace {

// The purpose of a generator. Streams of the same seed and epoch are independent of each other.
enum class RandomStream : std::uint32_t {
  kOrder = 1,       // the permutation of an epoch
  kAugment = 2,     // the random choices of a sample's transforms
  kSubstitute = 3,  // the sample that replaces a corrupt one
  kPack = 4,        // the order of samples in a pack
  kPool = 5,        // which sample of a pool is drawn: order `epoch`
  kChunk = 6,       // which chunk refills a slot: order `redox`
  kPlacement = 7,   // which of several equal blocks a placement keeps
  kDeal = 8,        // which row of a step has which position: order `epoch` with homes
  kShare = 9,       // the order of a node's own share: simulated policies
  kMixture = 10,    // which rank gets which draws of a mixture
};

// One block of Philox4x32-10: four numbers from a counter and a key. Pure.
std::array<std::uint32_t, 4> PhiloxBlock(std::array<std::uint32_t, 4> counter,
                                         std::array<std::uint32_t, 2> key);

// The numbers of one (seed, epoch, stream, item): words 0, 1, 2, ... of successive blocks.
//
// Key:     low and high half of `seed`.
// Counter: {block number, stream | epoch << 8, low half of item, high half of item}.
//          `epoch` must be below 2^24, the block number stays below 2^32.
// Thread safety: thread-compatible: const calls may be concurrent.
// Cost: about 15 ns per block of four words.
class Prng {
 public:
  Prng(std::uint64_t seed, std::uint64_t epoch, RandomStream stream, std::uint64_t item = 0);

  // Uniform over [0, 2^32).
  std::uint32_t Next32();

  // Uniform over [0, 2^64): the first word drawn is the low half.
  std::uint64_t Next64();

  // Uniform over [0, bound); `bound` must not be 0. Unbiased: multiply and reject (Lemire, "Fast
  // random integer generation in an interval", 2019), with 32-bit words up to 2^32 and 64-bit
  // above.
  std::uint64_t Below(std::uint64_t bound);

  // Uniform over [0, 1): the top 53 bits of Next64() times 2^-53.
  double Uniform();

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  std::uint32_t used_ = 4;  // words of block_ already returned; 4: none left
};

// Epochs must be below this: the counter has 24 bits for them.
inline constexpr std::uint64_t kEpochsMax = std::uint64_t{1} << 24;

}  // namespace headrace
