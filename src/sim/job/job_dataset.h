#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/index.h"
#include "sim/published/streams.h"

namespace headrace {

// The dataset of a job, scaled down: engines move its bytes in memory, and virtual time counts
// those that they stand for.
struct JobDataset {
  double scale = 1;                 // bytes of the job that one byte here stands for
  double mean_bytes = 0;            // of a sample, here
  std::uint64_t largest_bytes = 0;  // of a sample, here
  std::shared_ptr<const Index> index;

  explicit JobDataset(const SimulatedJob& job);

  [[nodiscard]] std::uint64_t Scaled(double bytes) const {
    return static_cast<std::uint64_t>(bytes / scale);
  }
};

}  // namespace headrace
