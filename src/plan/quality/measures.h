#pragma once

// Measures of one epoch's sequence, each a pure function of it. nulls.h has the expected values.

#include <cstdint>
#include <span>
#include <vector>

namespace headrace::quality {

// The position of a sample that an epoch did not deliver.
inline constexpr std::uint32_t kAbsent = 0xffff'ffff;

inline constexpr std::uint64_t kCells = 64;        // M2: rows and columns of the table
inline constexpr double kEndShare = 0.05;          // of an epoch: its first and last samples
inline constexpr std::uint64_t kSuperGroups = 64;  // M6, M8: neighbourhoods on storage

// M0. A sample that comes three times counts once in `duplicated` and twice in `repeats`.
struct Coverage {
  std::uint64_t count = 0;       // positions
  std::uint64_t missing = 0;     // samples that never came
  std::uint64_t duplicated = 0;  // samples that came more than once
  std::uint64_t repeats = 0;     // positions beyond each sample's first
  std::uint64_t ids_xor = 0;     // of Mix64(id)
  std::uint64_t ids_sum = 0;
};

// Fills `positions` (one a sample) with each sample's first position, or kAbsent.
Coverage Cover(std::span<const std::uint32_t> ids, std::span<std::uint32_t> positions);

// M1. Correlation of position and sample.
double PositionCorrelation(std::span<const std::uint32_t> ids);

// M2, M3. Pearson's chi-square of windows against groups; `sizes` counts each group.
double WindowChiSquare(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes,
                       std::uint64_t window);

// Only over the positions [begin, end), in windows, against the shares of all positions.
double SegmentChiSquare(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes,
                        std::uint64_t begin, std::uint64_t end, std::uint64_t window);

// M4. How often positions p and p + lag hold samples of one group, for each lag in [1, lags].
std::vector<std::uint64_t> SameAtLags(std::span<const std::uint32_t> groups, std::uint64_t lags);

// M5. Distances of the positions of samples s and s + 1.
struct Gaps {
  double pairs = 0;
  double ks = 0;        // Kolmogorov-Smirnov distance to a permutation's, times sqrt(pairs)
  double quantile = 1;  // 1 % quantile, as a share of a permutation's
};
Gaps MeasureGaps(std::span<const std::uint32_t> positions, std::uint64_t count);

// M6. The largest deviation of any group's running count from its share, in units of a Brownian
// bridge.
double PrefixDiscrepancy(std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> sizes);

// M7. Means over whole windows: effective number of groups, and min-entropy.
struct Sources {
  double windows = 0;
  double effective = 0;
  double min_entropy = 0;  // bits
};
Sources MeasureSources(std::span<const std::uint32_t> groups, std::uint64_t group_count,
                       std::uint64_t window);

// M9. Two epochs, over samples that both deliver.
struct Recurrence {
  double common = 0;                  // samples in both
  double correlation = 0;             // of their positions
  double pairs = 0;                   // pairs that share a batch in both epochs
  double expected = 0;                // number of such pairs by chance
  std::vector<std::uint32_t> before;  // common samples of each batch
  std::vector<std::uint32_t> after;
};
Recurrence MeasureRecurrence(std::span<const std::uint32_t> before,
                             std::span<const std::uint32_t> after, std::uint64_t batch);

// M10. Delivered against requested, position by position.
struct Redirection {
  double rate = 0;         // share of positions that delivered another sample than requested
  double early_share = 0;  // share of samples that came before they were requested
  double late_p50 = 0;     // delivered minus requested position
  double late_p99 = 0;
  double late_max = 0;
};
Redirection MeasureRedirection(std::span<const std::uint32_t> ids,
                               std::span<const std::uint32_t> requested,
                               std::span<const std::uint32_t> positions);

// M11. Plug-in entropy of |difference| of neighbours, bits.
double NeighbourEntropy(std::span<const std::uint32_t> ids, std::uint64_t sample_count);

}  // namespace headrace::quality
