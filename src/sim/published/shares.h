#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "sim/published/policy.h"
#include "sim/published/streams.h"

namespace headrace {

// The samples that nodes have loaded into one of their tiers before the first step: node i the i-th
// part of the dataset, until a sample does not fit. All read storage at the same time.
struct PreloadedShares {
  std::size_t tier = 0;
  std::vector<std::vector<std::uint32_t>> samples;  // by node
  std::vector<double> used_bytes;                   // of the tier, by node
  std::vector<double> seconds;                      // that it took, by node
  std::vector<bool> held;                           // by sample: some node has it
  Preload preload;

  // Also what other nodes have, over the network, from the next node on, until a sample does not
  // fit.
  void CopyFromPeers(const SimulatedJob& job);
};

// `job` is checked. Errors: FailedPrecondition  nodes have no such tier
Result<PreloadedShares> PreloadShares(const SimulatedJob& job, std::string_view policy,
                                      std::size_t tier);

}  // namespace headrace
