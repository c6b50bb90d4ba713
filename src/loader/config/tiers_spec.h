#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/placement/placement.h"

namespace headrace {

// A tier as a user asks for it.
struct TierSpec {
  std::string path;  // of a folder; empty: memory
  std::uint64_t capacity_bytes = 0;
  int threads = 4;  // that read and write a folder
};

// What a node keeps, and by which plan.
struct TiersSpec {
  std::vector<TierSpec> tiers;  // fastest first; empty: nothing is kept
  std::string placement = Placements().default_name();
  std::uint64_t horizon_epochs = 16;  // that the plan looks ahead

  // Of tiers in memory.
  [[nodiscard]] std::uint64_t memory_bytes() const {
    std::uint64_t bytes = 0;
    for (const TierSpec& tier : tiers) {
      if (tier.path.empty()) bytes += tier.capacity_bytes;
    }
    return bytes;
  }
};

}  // namespace headrace
