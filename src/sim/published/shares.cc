#include "sim/published/shares.h"

#include <algorithm>

#include "base/format/errors.h"

namespace headrace {

Result<PreloadedShares> PreloadShares(const SimulatedJob& job, std::string_view policy,
                                      std::size_t tier) {
  const Cluster& cluster = job.cluster;
  if (tier >= cluster.tiers.size()) {
    return FailedPrecondition("{}: loads samples into tiers, and nodes have none; add one", policy);
  }
  PreloadedShares shares{.tier = tier,
                         .samples = std::vector<std::vector<std::uint32_t>>(cluster.nodes),
                         .used_bytes = std::vector<double>(cluster.nodes),
                         .seconds = std::vector<double>(cluster.nodes),
                         .held = std::vector<bool>(job.sizes.size())};
  const double from_storage = cluster.Staged(cluster.FromStorage(cluster.nodes));
  for (std::uint64_t node = 0; node < cluster.nodes; ++node) {
    const std::uint64_t end = job.sizes.size() * (node + 1) / cluster.nodes;
    for (std::uint64_t sample = job.sizes.size() * node / cluster.nodes; sample < end; ++sample) {
      if (shares.used_bytes[node] + job.sizes[sample] > cluster.tiers[tier].bytes) break;
      shares.used_bytes[node] += job.sizes[sample];
      shares.seconds[node] +=
          job.sizes[sample] * from_storage +
          cluster.StorageWait(job.sizes[sample], cluster.nodes) / cluster.staging_threads;
      shares.held[sample] = true;
      shares.samples[node].push_back(static_cast<std::uint32_t>(sample));
    }
    shares.preload.storage_bytes += shares.used_bytes[node];
  }
  shares.preload.seconds = *std::ranges::max_element(shares.seconds);
  return shares;
}

void PreloadedShares::CopyFromPeers(const SimulatedJob& job) {
  const Cluster& cluster = job.cluster;
  const double from_peer = cluster.Staged(cluster.FromPeer(tier));
  const std::vector<std::vector<std::uint32_t>> own = samples;
  for (std::size_t node = 0; node < own.size(); ++node) {
    bool has_room = true;
    for (std::size_t i = 1; i < own.size() && has_room; ++i) {
      for (const std::uint32_t sample : own[(node + i) % own.size()]) {
        has_room = used_bytes[node] + job.sizes[sample] <= cluster.tiers[tier].bytes;
        if (!has_room) break;
        used_bytes[node] += job.sizes[sample];
        seconds[node] += job.sizes[sample] * from_peer;
        samples[node].push_back(sample);
        preload.peer_bytes += job.sizes[sample];
      }
    }
  }
  preload.seconds = *std::ranges::max_element(seconds);
}

}  // namespace headrace
