#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "sim/published/cluster.h"

namespace headrace {

// What is trained. Every node has one rank.
struct SimulatedJob {
  Cluster cluster;
  std::vector<double> sizes;     // bytes of each sample
  std::uint64_t batch_size = 1;  // of a node; what is left of an epoch is dropped
  std::uint64_t epochs = 1;
  std::uint64_t seed = 0;

  // Errors: InvalidArgument  those of Cluster::Check(); 2^32 - 1 samples or more; a size that is
  //                          below 0 or not finite; those of StepsPerEpoch()
  [[nodiscard]] Status Check() const;
};

// The samples that each node computes on, in order: its reference string R.
//
// Memory: 4 bytes a sample of a node and epoch.
// Thread safety: thread-compatible.
class Streams {
 public:
  // By the order `exact`. Errors: those of SimulatedJob::Check()
  static Result<Streams> Make(const SimulatedJob& job);

  [[nodiscard]] std::span<const std::uint32_t> Of(std::uint32_t node) const {
    return samples_[node];
  }
  // For a policy that decides the order itself. `samples` has as many numbers of samples as the
  // stream had.
  void Replace(std::uint32_t node, std::vector<std::uint32_t> samples);

  [[nodiscard]] std::uint64_t steps() const { return steps_per_epoch_ * epochs_; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }

 private:
  Streams() = default;

  std::uint64_t epochs_ = 0;
  std::uint64_t steps_per_epoch_ = 0;
  std::vector<std::vector<std::uint32_t>> samples_;
};

}  // namespace headrace
