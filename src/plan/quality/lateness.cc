#include "plan/quality/lateness.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "plan/quality/measures.h"
#include "plan/quality/nulls.h"

namespace headrace::quality {
namespace {

constexpr std::uint64_t kCostGroups = 10;

}  // namespace

Lateness::Lateness(std::vector<std::uint32_t> group_of, std::uint64_t groups)
    : group_of_(std::move(group_of)), sum_(groups), variance_(groups), count_(groups) {}

Lateness Lateness::ByPlace(std::uint64_t sample_count) {
  std::vector<std::uint32_t> places(sample_count);
  for (std::uint64_t i = 0; i < sample_count; ++i) {
    places[i] = static_cast<std::uint32_t>(i * kSuperGroups / sample_count);
  }
  return {std::move(places), kSuperGroups};
}

Lateness Lateness::ByCost(const std::vector<std::uint32_t>& costs) {
  std::vector<std::uint32_t> sorted = costs;
  std::ranges::sort(sorted);
  std::vector<std::uint32_t> deciles(costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const auto rank = std::ranges::lower_bound(sorted, costs[i]) - sorted.begin();
    deciles[i] =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(rank) * kCostGroups / costs.size());
  }
  return {std::move(deciles), kCostGroups};
}

void Lateness::Add(std::span<const std::uint32_t> ids) {
  if (group_of_.empty()) return;
  const auto n = static_cast<double>(ids.size());
  std::vector<double> sums(sum_.size());
  std::vector<double> counts(sum_.size());
  for (std::size_t p = 0; p < ids.size(); ++p) {
    const std::uint32_t group = group_of_[ids[p]];
    sums[group] += static_cast<double>(p) - (n - 1) / 2;
    counts[group] += 1;
  }
  for (std::size_t g = 0; g < sums.size(); ++g) {
    // In epochs: positions over n. The sum of a sample of `count` of n positions, without
    // replacement.
    sum_[g] += sums[g] / n;
    count_[g] += counts[g];
    variance_[g] += counts[g] * (n - counts[g]) * (n + 1) / 12 / (n * n);
  }
}

void Lateness::Report(const std::string& name, double tail, QualityReport& report) const {
  double most = 0;
  double groups = 0;
  double late = 0;
  for (std::size_t g = 0; g < sum_.size(); ++g) {
    if (variance_[g] <= 0) continue;
    groups += 1;
    const double z = std::abs(sum_[g]) / std::sqrt(variance_[g]);
    if (z > most) late = std::abs(sum_[g] / count_[g]);
    most = std::max(most, z);
  }
  if (groups < 2) return;
  const double high = NormalQuantile(tail / (2 * groups));
  report.more["late_by_" + name] = late;
  report.tests.push_back({.id = "M8",
                          .name = "lateness_by_" + name,
                          .value = most,
                          .expected = NormalQuantile(std::numbers::ln2 / (2 * groups)),
                          .low = 0,
                          .high = high,
                          .z = most,
                          .within = most <= high});
}

}  // namespace headrace::quality
