#include "observe/stats_sums.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <ranges>
#include <string_view>
#include <vector>

#include "base/hash.h"
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

// The entry of an epoch, made if it is not there.
EpochTaken& EpochIn(std::uint64_t epoch, std::vector<EpochTaken>& epochs) {
  const auto found = std::ranges::lower_bound(epochs, epoch, {}, &EpochTaken::epoch);
  if (found != epochs.end() && found->epoch == epoch) return *found;
  auto at = found - epochs.begin();
  if (epochs.size() == kEpochsListed) {
    epochs.erase(epochs.begin() + 1);
    if (at > 1) --at;
  }
  return *epochs.insert(epochs.begin() + at, EpochTaken{.epoch = epoch});
}

void AddTo(const Batch& batch, EpochTaken& total) {
  if (total.batches > 0 && batch.step != total.next_step) total.in_sequence = false;
  total.next_step = batch.step + 1;
  ++total.batches;
  total.samples += batch.samples.size();
  for (const SampleId sample : batch.samples) total.sample_sum += SampleSum(sample);
  for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
    total.stall_ns[cause] += batch.times.stall_ns[cause];
  }
  if (batch.sources.empty()) total.from_storage += batch.samples.size();
  for (const TierNumber source : batch.sources) {
    if (source == kNoTier || source == kFromNode) {
      ++(source == kNoTier ? total.from_storage : total.from_nodes);
      continue;
    }
    if (source >= total.from_tiers.size()) total.from_tiers.resize(std::size_t{source} + 1);
    ++total.from_tiers[source];
  }
}

}  // namespace

void AddRun(const EngineStats& run, EngineStats& total) {
  total.lanes.resize(run.lanes.size());
  Add(run, total);
}

std::uint64_t SampleSum(SampleId sample) {
  return Mix64(static_cast<std::uint64_t>(sample) + 0x9e3779b97f4a7c15U);
}

void AddBatch(const Batch& batch, Delivered& total) {
  ++total.batches;
  total.samples += batch.samples.size();
  total.substituted += batch.substitutions.size();
  Add(batch.substitutions, total.substitutions);
  AddTo(batch, EpochIn(batch.epoch, total.epochs));
}

}  // namespace headrace
