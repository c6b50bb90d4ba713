#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/quality/report.h"

namespace headrace::quality {

// M8: whether the samples of a group come early or late in their epochs, for each group.
//
// Thread safety: none; const methods may be called concurrently.
// Memory: 4 bytes a sample of the dataset.
class Lateness {
 public:
  // No groups: measures nothing.
  Lateness() = default;

  // Groups are neighbourhoods on storage: a late device is a place.
  static Lateness ByPlace(std::uint64_t sample_count);
  // Groups are tenths of the samples by cost. Equal costs stay together, so groups may be uneven or
  // empty.
  static Lateness ByCost(const std::vector<std::uint32_t>& costs);

  // Adds an epoch.
  void Add(std::span<const std::uint32_t> ids);

  // Adds a test with `name` in its name, which fails by chance with probability `tail`, and how
  // late the worst group is, if there are two groups or more.
  void Report(const std::string& name, double tail, QualityReport& report) const;

 private:
  Lateness(std::vector<std::uint32_t> group_of, std::uint64_t groups);

  std::vector<std::uint32_t> group_of_;  // of each sample
  // Of each group.
  std::vector<double> sum_;  // of positions minus their mean, in epochs
  std::vector<double> variance_;
  std::vector<double> count_;
};

}  // namespace headrace::quality
