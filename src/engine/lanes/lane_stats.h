#pragma once

#include <cstdint>
#include <vector>

#include "headrace/part_stats.h"

namespace headrace {

// What all lanes of an engine did.
struct LanesStats {
  std::uint64_t substituted = 0;            // samples replaced, in batches that were handed over
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  std::vector<LaneStats> lanes;
};

}  // namespace headrace
