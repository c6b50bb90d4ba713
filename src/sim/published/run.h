#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "headrace/status.h"
#include "sim/published/policy.h"

namespace headrace {

// Of all nodes together.
struct FetchTotals {
  std::uint64_t samples = 0;
  double bytes = 0;
  double seconds = 0;  // of the threads that fetched, without preprocessing and writing
};

struct PublishedResult {
  double seconds = 0;        // until the last node has ended
  double setup_seconds = 0;  // of it, before the first step
  std::vector<double> epoch_seconds;
  std::vector<double> step_seconds;
  std::array<FetchTotals, SampleFetch::kKinds> fetched;  // by SampleFetch::From
  double compute_seconds = 0;                            // mean of the nodes: computing,
  double stall_seconds = 0;                              // waiting for samples,
  double barrier_seconds = 0;                            // and for slower nodes
  std::uint64_t samples_used = 0;  // of the dataset, by any node, at least once
};

// Runs a job, bulk-synchronously: a step begins on all nodes when the slowest has ended the one
// before. Within a step nodes are simulated one after the other; each sees the reads that those
// before it have begun.
//
// Time: about 50 ns a sample and node. Memory: Streams; what the policy keeps.
// Errors: those of PublishedJob::Check() and PublishedPolicy::Begin()
Result<PublishedResult> RunPublished(const PublishedPolicyRow& row, const PublishedJob& job);

}  // namespace headrace
