#pragma once

#include <cstddef>
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
  std::vector<double> used_bytes;                  // of each tier
  // Where samples leave tiers; else empty.
  std::vector<std::uint32_t> left;      // used and in no tier, the most used first
  std::size_t next_left = 0;            // in `left`
  std::vector<std::uint64_t> last_use;  // by sample: its place in the stream

  NopfsPlan(const SimulatedJob& job, std::span<const std::uint32_t> stream, bool cleanup);
};

std::unique_ptr<PublishedPolicy> MakePublishedNopfs(const PolicyRequest& request);
std::unique_ptr<PublishedPolicy> MakePublishedNopfsCleanup(const PolicyRequest& request);

}  // namespace headrace
