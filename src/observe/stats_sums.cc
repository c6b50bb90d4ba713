#include "observe/stats_sums.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <string_view>
#include <vector>

#include "headrace/members.h"

namespace headrace {
namespace {

// Members that tell how things are now, or for all runs: the newest run's take their place. All
// others are counters, and summed.
constexpr std::array<std::string_view, 10> kGauges = {
    "reads_in_flight", "steps_in_work", "staging",      "batch", "resident",
    "pinned",          "scratch",       "queued_reads", "ready", "gone"};

bool IsGauge(std::string_view name) {
  return std::find(kGauges.begin(), kGauges.end(), name) != kGauges.end();
}

template <typename T>
void Add(const T& run, T& total) {
  if constexpr (Described<T>) {
    const auto add = [](std::string_view name, const auto& of_run, auto& in_total) {
      IsGauge(name) ? void(in_total = of_run) : Add(of_run, in_total);
    };
    ForEachMember(add, run, total);
  } else if constexpr (std::same_as<T, std::vector<Substitution>>) {
    const std::size_t listed = std::min(kSubstitutionsListed, total.size() + run.size());
    for (std::size_t i = 0; total.size() < listed; ++i) total.push_back(run[i]);
  } else if constexpr (std::ranges::range<T>) {
    if constexpr (!std::same_as<T, StallTimes>) total.resize(std::max(total.size(), run.size()));
    for (std::size_t i = 0; i < run.size(); ++i) Add(run[i], total[i]);
  } else if constexpr (!std::same_as<T, bool>) {  // Which are gauges.
    total += run;
  }
}

}  // namespace

void AddRun(const EngineStats& run, EngineStats& total) {
  total.lanes.resize(run.lanes.size());
  Add(run, total);
}

void AddBatch(const Batch& batch, Delivered& total) {
  ++total.batches;
  total.samples += batch.samples.size();
  total.substituted += batch.substitutions.size();
  Add(batch.substitutions, total.substitutions);
}

}  // namespace headrace
