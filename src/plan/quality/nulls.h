#pragma once

// The distributions of the measures under a uniform permutation, to compare with. Exact moments
// where they are known, with their sources; docs/quality.md has the formulas.

#include <cstdint>
#include <span>

namespace headrace::quality {

// Moments of a statistic under a uniform permutation. The third moment is for skewed ones:
// chi-squares of few degrees of freedom and counts of rare pairs.
struct Null {
  double mean = 0;
  double sd = 0;
  double skew = 0;
};

// The deviation from the mean, as standard deviations of a normal distribution with the same tail
// probability (Pearson's type III; Wilson and Hilferty 1931). For a statistic that cannot vary 0 at
// its mean, otherwise infinite.
double ZScore(double value, const Null& null);

// The value whose ZScore is `z`.
double ValueAt(double z, const Null& null);

// z with P(Z > z) = tail, for a standard normal Z; tail in (0, 0.5].
double NormalQuantile(double tail);

// Sums over the sizes of the groups that positions fall into.
struct GroupSizes {
  double total = 0;        // positions
  double groups = 0;       // groups with at least one position
  double inverse_sum = 0;  // of 1 / size
  double falling2 = 0;     // of size (size - 1)
  double falling3 = 0;
  double falling4 = 0;
  double falling2_squared = 0;  // of (size (size - 1))^2

  // Probability that two positions drawn without replacement are in one group.
  [[nodiscard]] double same() const { return falling2 / (total * (total - 1)); }
};
GroupSizes SumSizes(std::span<const std::uint32_t> sizes);

// Pearson's chi-square of a table with these margins (rows of a permutation against groups):
// Haldane 1940; Lewis, Saunders and Westcott 1984.
Null ChiSquareNull(const GroupSizes& rows, const GroupSizes& groups);

// As ChiSquareNull(), over `rows` windows of `window` positions only, against the shares of all
// positions.
Null SegmentNull(double rows, double window, const GroupSizes& groups);

// Pairs of one group among a set of pairs of positions. `pairs`: their number; `sharing`,
// `disjoint`: how many ordered pairs of them share one position or none.
Null SamePairsNull(double pairs, double sharing, double disjoint, const GroupSizes& groups);

// Plug-in entropy, in bits, of |difference| of `count` neighbours of a permutation of samples of
// [0, range): bins are Poisson with a rate that falls with the difference.
Null NeighbourEntropyNull(double count, double range);

// Largest deviation of a Brownian bridge (Kolmogorov), over `groups` of them.
double BridgeUpper(double tail, double groups);
double BridgeLower(double tail);

}  // namespace headrace::quality
