#include "sim/job/job_dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/job/sized_dataset.h"

namespace headrace {
namespace {

// Of a sample on average: orders that read blocks copy samples in memory.
constexpr double kMeanBytesMax = 512;

}  // namespace

JobDataset::JobDataset(const SimulatedJob& job) {
  const double sum = std::accumulate(job.sizes.begin(), job.sizes.end(), 0.0);
  const double mean = sum / static_cast<double>(job.sizes.size());
  scale = std::max(1.0, mean / kMeanBytesMax);
  std::vector<std::uint64_t> sizes;
  sizes.reserve(job.sizes.size());
  for (const double size : job.sizes) {
    sizes.push_back(static_cast<std::uint64_t>(std::llround(size / scale)));
    largest_bytes = std::max(largest_bytes, sizes.back());
  }
  mean_bytes = mean / scale;
  index = MakeSizedIndex(sizes);
}

}  // namespace headrace
