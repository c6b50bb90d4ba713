#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/mixture/split_tree.h"

namespace headrace {

// The row of a step's draw: of `rank`'s batch, its row `slot`.
struct DealtRow {
  std::uint32_t rank = 0;
  std::uint32_t slot = 0;

  friend bool operator==(const DealtRow&, const DealtRow&) = default;
};

// Deals a step's draws to the ranks: each rank gets equally many, and of each source its part,
// rounded down or up. In a row, as a sampler deals, sources would keep to ranks: of two equal
// sources rank 0 of 2 would get one, for ever.
//
// The draws, sorted by source, go to the ranks in turn, in a permutation of them that is drawn
// anew in each `ranks` steps and rotated by one in each step; so what rounding takes from a rank
// comes back. A rank's rows have the order of the draws. Which draws a step has does not depend on
// `ranks`.
//
// `draws` are a multiple of `ranks`, and `rows` as many. Takes O(n log n). Thread-safe.
void DealDraws(std::span<const Draw> draws, std::uint32_t ranks, std::uint64_t seed,
               std::uint64_t step, std::span<DealtRow> rows);

}  // namespace headrace
