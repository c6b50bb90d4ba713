#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/published/policy.h"
#include "sim/published/streams.h"

namespace headrace {

// What NoPFS keeps in the tiers of a node: the samples that the node uses most in the whole run,
// of equal ones the first by number, in the fastest tier until one does not fit, then in the next.
struct NopfsPlan {
  static constexpr std::uint8_t kNoTier = 0xff;

  std::vector<std::uint8_t> tier_of;               // by sample
  std::vector<std::vector<std::uint32_t>> in_use;  // of each tier, in the order of their first use

  NopfsPlan(const SimulatedJob& job, std::span<const std::uint32_t> stream);
};

std::unique_ptr<PublishedPolicy> MakePublishedNopfs(const PolicyRequest& request);

}  // namespace headrace
