#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/index.h"
#include "sim/published/streams.h"

namespace headrace {

// The dataset of a job, scaled down: engines move its bytes in memory, and virtual time counts
// those that they stand for.
//
// Thread safety: const calls may be concurrent.
// Memory: 8 bytes a sample.
struct JobDataset {
  double scale = 1;                 // bytes of the job that one byte here stands for
  double mean_bytes = 0;            // of a sample, here
  std::uint64_t largest_bytes = 0;  // of a sample, here
  std::shared_ptr<const Index> index;

  // `job` is checked, and not needed later.
  explicit JobDataset(const SimulatedJob& job);

  // Bytes of the job, in those here; rounded down.
  [[nodiscard]] std::uint64_t Scaled(double bytes) const {
    return static_cast<std::uint64_t>(bytes / scale);
  }
};

}  // namespace headrace
