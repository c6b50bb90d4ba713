#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "headrace/status.h"
#include "sim/published/policy.h"

namespace headrace {

// What nodes got when they needed it, or into staging ahead of that; of all nodes together.
struct FetchTotals {
  std::uint64_t samples = 0;
  double bytes = 0;
  double seconds = 0;  // of the threads that fetched, without preprocessing and writing
};

struct SimulatedRun {
  double seconds = 0;                 // until the last node has ended
  double setup_seconds = 0;           // of it, before the first step
  std::vector<double> epoch_seconds;  // the first with what comes before it
  std::vector<double> step_seconds;
  std::array<FetchTotals, SampleFetch::kKinds> fetched;  // by SampleFetch::From
  double filled_bytes = 0;         // that tiers read from storage, before and during training,
  double copied_bytes = 0;         // and from other nodes
  double compute_seconds = 0;      // mean of the nodes: computing,
  double stall_seconds = 0;        // waiting for samples,
  double barrier_seconds = 0;      // and for slower nodes
  double allreduce_seconds = 0;    // after computing, all nodes together
  std::uint64_t samples_used = 0;  // of the dataset, by any node, at least once

  // Makes means of the sums of computing, waiting for samples, and for slower nodes.
  void DivideBy(double workers);
};

// What a run returns whose keep_going() returned false: Cancelled.
Status SimulationEnded();

// Runs a job, bulk-synchronously: a step begins on all nodes when the slowest has ended the one
// before. Within a step nodes are simulated one after the other; each sees the reads that those
// before it have begun.
//
// `keep_going` is asked before each step; may be empty.
//
// Thread safety: may be called from any thread.
// Time: each read of storage looks at all nodes. 4 nodes: 0.1 to 0.5 us a sample; 512: 1 to 8.
// Memory: Streams; `nopfs` 9 bytes a sample of the dataset and node, and 8 a thread of a tier;
//         `lru` 8 a sample of the dataset and node; `belady` 8 a sample of a node and epoch.
// Errors: Cancelled  keep_going() returned false; those of SimulatedJob::Check() and
//         PublishedPolicy::Begin()
Result<SimulatedRun> RunPublished(const PublishedPolicyRow& row, const SimulatedJob& job,
                                  const std::function<bool()>& keep_going = nullptr);

// The same of a policy that has no row. `make` is called once.
using MakePolicy = std::function<std::unique_ptr<PublishedPolicy>(const PolicyRequest& request)>;
Result<SimulatedRun> RunPublished(std::string_view name, const MakePolicy& make,
                                  const SimulatedJob& job,
                                  const std::function<bool()>& keep_going = nullptr);

}  // namespace headrace
