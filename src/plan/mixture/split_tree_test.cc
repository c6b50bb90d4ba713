#include "plan/mixture/split_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using Weights = std::vector<std::uint64_t>;

Weights RandomWeights(Prng& prng, std::size_t sources) {
  Weights weights(sources);
  const std::uint64_t kind = prng.Below(5);
  for (std::size_t i = 0; i < sources; ++i) {
    switch (kind) {
      case 0:
        weights[i] = 7;
        break;
      case 1:
        weights[i] = 1 + prng.Below(1000);
        break;
      case 2:
        weights[i] = std::uint64_t{1} << prng.Below(50);
        break;
      case 3:
        weights[i] = (std::uint64_t{1} << 40) / (i + 1);
        break;
      default:
        weights[i] = prng.Below(3) == 0 ? 0 : 1 + prng.Below(100);
        break;
    }
  }
  weights[prng.Below(sources)] = 1 + prng.Below(std::uint64_t{1} << 45);
  return weights;
}

// The share of each source in the first `position` positions, as exactly as a long double has it.
long double ShareOf(const Weights& weights, std::size_t source, std::uint64_t position) {
  const auto total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  return static_cast<long double>(weights[source]) * static_cast<long double>(position) /
         static_cast<long double>(total);
}

TEST(SplitTreeTest, IsFrozen) {
  const SplitTree tree(Weights{5, 3, 2});
  std::vector<std::uint32_t> sources;
  for (std::uint64_t position = 0; position < 10; ++position) {
    sources.push_back(tree.At(position).source);
  }
  EXPECT_EQ(sources, (std::vector<std::uint32_t>{1, 0, 2, 0, 1, 0, 2, 0, 1, 0}));
}

// All answers, compared with counting position by position.
TEST(SplitTreeTest, ClosedFormsAreWhatCountingGives) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng(seed, 0, RandomStream::kOrder);
    const std::size_t sources = 1 + prng.Below(seed % 10 == 0 ? 200 : 12);
    const Weights weights = RandomWeights(prng, sources);
    const SplitTree tree(weights);
    std::vector<std::uint64_t> counts(sources);
    std::vector<std::uint64_t> found(sources);
    std::vector<Draw> draws(400);
    tree.Draws(0, draws);
    for (std::uint64_t position = 0; position < draws.size(); ++position) {
      tree.CountsBefore(position, found);
      ASSERT_EQ(found, counts) << seed;
      const Draw draw = tree.At(position);
      ASSERT_EQ(draw, draws[position]) << seed;
      ASSERT_GT(weights[draw.source], 0U);
      ASSERT_EQ(draw.number, counts[draw.source]++) << seed;
      ASSERT_EQ(tree.PositionOf(draw), position) << seed;
      const auto source = static_cast<std::uint32_t>(prng.Below(sources));
      ASSERT_EQ(tree.CountBefore(source, position + 1), counts[source]) << seed;
    }
    const std::uint64_t first = prng.Below(300);
    std::vector<Draw> part(1 + prng.Below(100));
    tree.Draws(first, part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), draws.begin() + static_cast<long>(first)));
  }
}

TEST(SplitTreeTest, EverySourceHasItsShareBeforeEveryPosition) {
  long double farthest = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Prng prng(seed, 1, RandomStream::kOrder);
    const std::size_t sources = 1 + prng.Below(seed % 50 == 0 ? 1000 : 30);
    const Weights weights = RandomWeights(prng, sources);
    const SplitTree tree(weights);
    std::vector<std::uint64_t> counts(sources);
    for (int i = 0; i < 50; ++i) {
      // Near the beginning, where all fractions come, and far away.
      const std::uint64_t position = prng.Below(i % 2 == 0 ? 4 * sources + 10 : 1U << 30);
      tree.CountsBefore(position, counts);
      for (std::size_t source = 0; source < sources; ++source) {
        farthest = std::max(farthest, std::abs(static_cast<long double>(counts[source]) -
                                               ShareOf(weights, source, position)));
      }
    }
  }
  EXPECT_LT(farthest, 1.68L);
  EXPECT_GT(farthest, 0.9L);  // that something was looked at
}

// The tree whose bound is the largest: Fibonacci numbers, one heavier child at each level.
TEST(SplitTreeTest, ADeepTreeHoldsItsBound) {
  Weights weights = {1, 1};
  while (weights.size() < 80)
    weights.push_back(weights[weights.size() - 1] + weights[weights.size() - 2]);
  const SplitTree tree(weights);
  std::vector<std::uint64_t> counts(weights.size());
  for (std::uint64_t position = 0; position < 20000; ++position) {
    tree.CountsBefore(position, counts);
    for (std::size_t source = 0; source < weights.size(); ++source) {
      const long double share = ShareOf(weights, source, position);
      ASSERT_LT(std::abs(static_cast<long double>(counts[source]) - share), 1.68L) << position;
    }
  }
}

TEST(SplitTreeTest, FarPositionsAndRareSources) {
  const SplitTree tree(Weights{1, std::uint64_t{1} << 60});
  const std::uint64_t first = tree.PositionOf({.source = 0, .number = 0});
  EXPECT_EQ(tree.At(first), (Draw{.source = 0, .number = 0}));
  EXPECT_EQ(tree.CountBefore(0, first), 0U);
  EXPECT_EQ(tree.CountBefore(0, first + 1), 1U);
  EXPECT_EQ(tree.PositionOf({.source = 0, .number = 100}), SplitTree::kPositionsMax);
  const std::uint64_t far = SplitTree::kPositionsMax - 2;
  EXPECT_EQ(tree.PositionOf(tree.At(far)), far);
  const SplitTree alone(Weights{0, 3, 0});
  EXPECT_EQ(alone.At(far), (Draw{.source = 1, .number = far}));
  EXPECT_EQ(alone.PositionOf({.source = 0, .number = 0}), SplitTree::kPositionsMax);
  EXPECT_EQ(alone.CountBefore(2, far), 0U);
}

}  // namespace
}  // namespace headrace
