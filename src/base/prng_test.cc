#include "base/prng.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace headrace {
namespace {

// The known answers that come with the Random123 distribution (kat_vectors, philox4x32 10).
TEST(PrngTest, PhiloxGivesTheAuthorsKnownAnswers) {
  EXPECT_EQ(PhiloxBlock({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(PhiloxBlock({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(PhiloxBlock({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PrngTest, BelowStaysBelowAndReachesEveryValue) {
  for (const std::uint64_t bound : {1U, 2U, 3U, 7U, 64U}) {
    Prng prng(1, 2, RandomStream::kOrder);
    std::vector<int> seen(bound, 0);
    for (int i = 0; i < 2000; ++i) ++seen.at(prng.Below(bound));
    EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 0) << bound;
  }
}

TEST(PrngTest, BelowTakes64BitBounds) {
  Prng prng(1, 2, RandomStream::kOrder);
  const std::uint64_t bound = (std::uint64_t{1} << 40) + 12345;
  bool above_32_bits = false;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = prng.Below(bound);
    ASSERT_LT(value, bound);
    above_32_bits |= (value >> 32) != 0;
  }
  EXPECT_TRUE(above_32_bits);
}

TEST(PrngTest, EveryPartOfTheKeyMatters) {
  const auto first = [](auto... key) { return Prng(key...).Next64(); };
  const std::uint64_t base = first(1u, 2u, RandomStream::kOrder, 3u);
  EXPECT_EQ(base, first(1u, 2u, RandomStream::kOrder, 3u));
  EXPECT_NE(base, first(2u, 2u, RandomStream::kOrder, 3u));
  EXPECT_NE(base, first(1u, 3u, RandomStream::kOrder, 3u));
  EXPECT_NE(base, first(1u, 2u, RandomStream::kAugment, 3u));
  EXPECT_NE(base, first(1u, 2u, RandomStream::kOrder, 4u));
  EXPECT_NE(base, first(std::uint64_t{1} << 32 | 1, 2u, RandomStream::kOrder, 3u));
}

TEST(PrngTest, UniformIsInTheHalfOpenUnitInterval) {
  Prng prng(9, 0, RandomStream::kAugment);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = prng.Uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

}  // namespace
}  // namespace headrace
