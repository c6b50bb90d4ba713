#include "sim/published/nopfs_plan.h"

#include <algorithm>
#include <numeric>

namespace headrace {

NopfsPlan::NopfsPlan(const SimulatedJob& job, std::span<const std::uint32_t> stream, bool cleanup)
    : tier_of(job.sizes.size(), kNoTier),
      in_use(job.cluster.tiers.size()),
      used_bytes(job.cluster.tiers.size()) {
  std::vector<std::uint32_t> uses(job.sizes.size());
  std::vector<std::uint32_t> used;  // in the order of first use
  for (const std::uint32_t sample : stream) {
    if (uses[sample]++ == 0) used.push_back(sample);
  }
  std::vector<std::uint32_t> most_used = used;
  std::ranges::sort(most_used, [&](std::uint32_t one, std::uint32_t other) {
    return uses[one] != uses[other] ? uses[one] > uses[other] : one < other;
  });
  std::uint8_t tier = 0;  // There are Cluster::kTiersMax at most.
  auto next = most_used.begin();
  for (; next != most_used.end(); ++next) {
    const double bytes = job.sizes[*next];
    while (tier < in_use.size() && used_bytes[tier] + bytes > job.cluster.tiers[tier].bytes) ++tier;
    if (tier == in_use.size()) break;
    tier_of[*next] = tier;
    used_bytes[tier] += bytes;
  }
  if (cleanup) {
    left.assign(next, most_used.end());
    last_use.resize(job.sizes.size());
    for (std::size_t place = 0; place < stream.size(); ++place) last_use[stream[place]] = place;
  }
  for (const std::uint32_t sample : used) {
    if (tier_of[sample] != kNoTier) in_use[tier_of[sample]].push_back(sample);
  }
}

}  // namespace headrace
