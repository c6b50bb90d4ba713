#include "plan/permutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "gtest/gtest.h"

namespace headrace {
namespace {

std::vector<std::uint64_t> Listed(const Permutation& permutation) {
  std::vector<std::uint64_t> list(permutation.size());
  for (std::uint64_t i = 0; i < list.size(); ++i) list[i] = permutation.At(i);
  return list;
}

bool IsPermutation(std::vector<std::uint64_t> list) {
  std::sort(list.begin(), list.end());
  for (std::uint64_t i = 0; i < list.size(); ++i) {
    if (list[i] != i) return false;
  }
  return true;
}

// The order is part of the contract between nodes: a change here breaks mixed-version runs and
// saved states. tests/python/test_order.py checks the same vectors against an independent NumPy
// version.
TEST(PermutationTest, TableIsFrozen) {
  EXPECT_EQ(Listed(Permutation(10, 7, 0, RandomStream::kOrder)),
            (std::vector<std::uint64_t>{2, 6, 4, 5, 0, 8, 3, 7, 9, 1}));
}

TEST(PermutationTest, KeyedBijectionIsFrozen) {
  EXPECT_EQ(Listed(Permutation(10, 7, 0, RandomStream::kOrder, /*bijection_from=*/1)),
            (std::vector<std::uint64_t>{7, 2, 8, 9, 3, 6, 5, 0, 1, 4}));
  const Permutation large((std::uint64_t{1} << 27) + 1, 7, 3, RandomStream::kOrder);
  EXPECT_EQ((std::vector<std::uint64_t>{large.At(0), large.At(1), large.At(1u << 27)}),
            (std::vector<std::uint64_t>{31807697, 113214232, 50329850}));
}

TEST(PermutationTest, EveryEntryComesOnce) {
  for (std::uint64_t size = 1; size < 300; ++size) {
    EXPECT_TRUE(IsPermutation(Listed(Permutation(size, size, 1, RandomStream::kOrder)))) << size;
    EXPECT_TRUE(IsPermutation(
        Listed(Permutation(size, size, 1, RandomStream::kOrder, /*bijection_from=*/1))))
        << size;
  }
}

TEST(PermutationTest, FromItsThresholdOnItIsTheKeyedBijection) {
  for (const std::uint64_t threshold : {64U, 100U, 128U, 1000U, 65536U}) {
    for (const std::uint64_t size : {threshold - 1, threshold, threshold + 1}) {
      const Permutation permutation(size, 5, 2, RandomStream::kOrder, threshold);
      EXPECT_TRUE(IsPermutation(Listed(permutation))) << size;
      const bool keyed = size >= threshold;
      const Permutation same(size, 5, 2, RandomStream::kOrder, keyed ? 1 : size + 1);
      EXPECT_EQ(Listed(permutation), Listed(same)) << size;
    }
  }
}

// The sizes around the threshold of new runs.
TEST(PermutationTest, TheKeyedBijectionOfLargeSizesGivesEveryEntryOnce) {
  constexpr std::uint64_t kThreshold = std::uint64_t{1} << 24;
#ifdef NDEBUG
  constexpr std::array kSizes = {kThreshold - 1, kThreshold, kThreshold + 1};
#else
  constexpr std::array kSizes = {kThreshold + 1};  // Slow builds look for other mistakes.
#endif
  for (const std::uint64_t size : kSizes) {
    const Permutation permutation(size, 3, 1, RandomStream::kOrder, kThreshold - 1);
    std::vector<bool> seen(size, false);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t entry = permutation.At(i);
      ASSERT_LT(entry, size);
      ASSERT_FALSE(seen[entry]) << size;
      seen[entry] = true;
    }
  }
}

// 24 permutations of 4 entries, 24,000 draws: chi-square with 23 degrees of freedom stays below 60
// with probability 1 - 4e-5, and the seeds are fixed.
TEST(PermutationTest, TableIsUniformOverPermutations) {
  std::map<std::vector<std::uint64_t>, int> counts;
  for (std::uint64_t seed = 0; seed < 24000; ++seed) {
    ++counts[Listed(Permutation(4, seed, 0, RandomStream::kOrder))];
  }
  ASSERT_EQ(counts.size(), 24);
  double chi_square = 0;
  for (const auto& [list, count] : counts) chi_square += std::pow(count - 1000, 2) / 1000;
  EXPECT_LT(chi_square, 60);
}

// A keyed bijection is no uniform draw over all permutations; what an order needs of it is that
// each entry is equally likely at each position, and that neighbours do not stay together.
TEST(PermutationTest, KeyedBijectionIsUniformOverPositionsAndParts) {
  constexpr std::uint64_t kSize = 37;
  constexpr std::uint64_t kDraws = 7400;
  std::vector<int> cell(kSize * kSize, 0);
  std::vector<int> distance(kSize, 0);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Permutation permutation(kSize, seed, 0, RandomStream::kOrder, /*bijection_from=*/1);
    for (std::uint64_t i = 0; i < kSize; ++i) ++cell[i * kSize + permutation.At(i)];
    ++distance[(permutation.At(1) + kSize - permutation.At(0)) % kSize];
  }
  const double expected = static_cast<double>(kDraws) / kSize;
  double chi_square = 0;
  for (const int count : cell) chi_square += std::pow(count - expected, 2) / expected;
  const double freedom = (kSize - 1) * (kSize - 1);
  EXPECT_LT((chi_square - freedom) / std::sqrt(2 * freedom), 4);
  EXPECT_EQ(distance[0], 0);
  const double expected_distance = static_cast<double>(kDraws) / (kSize - 1);
  double chi_distance = 0;
  for (std::uint64_t d = 1; d < kSize; ++d) {
    chi_distance += std::pow(distance[d] - expected_distance, 2) / expected_distance;
  }
  EXPECT_LT((chi_distance - 35) / std::sqrt(70), 4);
}

TEST(EntryFinderTest, ItFindsWhatAPermutationHas) {
  for (const std::uint64_t size : {1U, 2U, 3U, 64U, 65U, 1000U}) {
    for (const std::uint64_t bijection_from : {1U, 65U, 2000U}) {
      EntryFinder finder(size, bijection_from);
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Permutation all(size, seed, 3, RandomStream::kPlacement, bijection_from);
        std::vector<std::uint32_t> entries;
        for (std::uint32_t entry = 0; entry < size; ++entry) {
          if ((entry + seed) % (seed % 5 + 1) == 0) entries.push_back(entry);
        }
        std::vector<std::uint32_t> positions(entries.size());
        finder.Find(seed, 3, RandomStream::kPlacement, entries, positions);
        for (std::size_t i = 0; i < entries.size(); ++i) {
          ASSERT_EQ(all.At(positions[i]), entries[i]) << size << " " << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace
