#include "plan/mixture/dealing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "plan/mixture/split_tree.h"

namespace headrace {
namespace {

std::vector<DealtRow> Dealt(const std::vector<Draw>& draws, std::uint32_t ranks, std::uint64_t step,
                            std::uint64_t seed = 1) {
  std::vector<DealtRow> rows(draws.size());
  DealDraws(draws, ranks, seed, step, rows);
  return rows;
}

TEST(DealingTest, EveryRankGetsItsPartOfEverySource) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Prng prng(seed, 0, RandomStream::kOrder);
    const auto ranks = static_cast<std::uint32_t>(1 + prng.Below(8));
    std::vector<Draw> draws(ranks * (1 + prng.Below(40)));
    std::map<std::uint32_t, std::uint64_t> of_source;
    for (Draw& draw : draws) {
      draw.source = static_cast<std::uint32_t>(prng.Below(1 + seed % 30));
      draw.number = of_source[draw.source]++;
    }
    const std::vector<DealtRow> rows = Dealt(draws, ranks, prng.Below(100));
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> counts;
    std::vector<std::uint32_t> slots(ranks);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ++counts[{rows[i].rank, draws[i].source}];
      ASSERT_LT(rows[i].rank, ranks);
      ASSERT_EQ(rows[i].slot, slots[rows[i].rank]++);  // in the order of the draws
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(slots[rank], draws.size() / ranks);
      for (const auto& [source, count] : of_source) {
        const std::uint64_t dealt = counts[{rank, source}];
        ASSERT_GE(dealt, count / ranks);
        ASSERT_LE(dealt, (count + ranks - 1) / ranks);
      }
    }
  }
}

// Over many steps a rank's part of a source is nearer to its share than draws at random are.
TEST(DealingTest, WhatRoundingTakesComesBack) {
  constexpr std::uint32_t kRanks = 8;
  constexpr std::uint64_t kSteps = 4000;
  const std::vector<std::uint64_t> weights = {500, 290, 100, 60, 30, 15, 4, 1};
  const SplitTree tree(weights);
  std::vector<std::vector<double>> counts(kRanks, std::vector<double>(weights.size()));
  std::vector<Draw> draws(64);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    tree.Draws(step * draws.size(), draws);
    const std::vector<DealtRow> rows = Dealt(draws, kRanks, step);
    for (std::size_t i = 0; i < rows.size(); ++i) ++counts[rows[i].rank][draws[i].source];
  }
  for (std::size_t source = 0; source < weights.size(); ++source) {
    const double share = static_cast<double>(weights[source]) / 1000 * 64 * kSteps / kRanks;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      // 5 standard deviations of one rounding a step, at most 1/2.
      EXPECT_NEAR(counts[rank][source], share, 2 + 2.5 * std::sqrt(double{kSteps}));
    }
  }
}

TEST(DealingTest, DependsOnSeedAndStep) {
  std::vector<Draw> draws(64);
  for (std::size_t i = 0; i < draws.size(); ++i)
    draws[i].source = static_cast<std::uint32_t>(i % 3);
  EXPECT_EQ(Dealt(draws, 8, 5), Dealt(draws, 8, 5));
  EXPECT_NE(Dealt(draws, 8, 5), Dealt(draws, 8, 6));
  EXPECT_NE(Dealt(draws, 8, 5), Dealt(draws, 8, 5, /*seed=*/2));
}

}  // namespace
}  // namespace headrace
