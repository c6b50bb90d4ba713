#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/members.h"
#include "plan/placement/placement.h"
#include "plan/placement/readers/ask_policy.h"

namespace headrace {

// A tier that a user requests.
struct TierSpec {
  std::string path;  // of a folder; empty: memory
  std::uint64_t capacity_bytes = 0;
  int threads = 4;  // threads that read and write a folder
};
HEADRACE_MEMBERS(TierSpec, path, capacity_bytes, threads)

// The tiers of a node and the plan for them.
struct TiersSpec {
  std::vector<TierSpec> tiers;  // fastest first; empty: no tiers
  std::string placement = Placements().default_name();
  std::uint64_t horizon_epochs = 16;               // how many epochs the plan looks ahead
  std::string ask = AskPolicies().default_name();  // how this node decides which other one it asks

  // Total capacity of the tiers in memory.
  [[nodiscard]] std::uint64_t memory_bytes() const {
    std::uint64_t bytes = 0;
    for (const TierSpec& tier : tiers) {
      if (tier.path.empty()) bytes += tier.capacity_bytes;
    }
    return bytes;
  }
};
HEADRACE_MEMBERS(TiersSpec, tiers, placement, horizon_epochs, ask)

}  // namespace headrace
