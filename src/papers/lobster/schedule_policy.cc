#include "papers/lobster/schedule_policy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "papers/lobster/lobster_policy.h"

namespace headrace {
namespace {

// The planned shares plus the moves: at least 1 each, together at most the planned sum.
LaneShares Moved(std::span<const LaneThreads> planned, std::span<const int> moved) {
  LaneShares shares;
  int budget = 0;
  for (std::size_t lane = 0; lane < planned.size(); ++lane) {
    const int reads = static_cast<int>(planned[lane].loading);
    budget += reads;
    shares.push_back(std::max(1, reads + moved[lane]));
  }
  for (int all = std::accumulate(shares.begin(), shares.end(), 0); all > budget; --all) {
    --*std::max_element(shares.begin(), shares.end());
  }
  return shares;
}

}  // namespace

Result<std::unique_ptr<SchedulePolicy>> SchedulePolicy::Open(const Options& options,
                                                             std::unique_ptr<LanePolicy> beyond) {
  HEADRACE_CHECK(beyond != nullptr);
  HEADRACE_ASSIGN_OR_RETURN(ScheduleReader reader, ScheduleReader::Open(options.file));
  HEADRACE_RETURN_IF_ERROR(reader.CheckStart(options.start));
  return std::unique_ptr<SchedulePolicy>(
      new SchedulePolicy(options, std::move(reader), std::move(beyond)));
}

SchedulePolicy::SchedulePolicy(const Options& options, ScheduleReader reader,
                               std::unique_ptr<LanePolicy> beyond)
    : options_(options),
      reader_(std::move(reader)),
      beyond_(std::move(beyond)),
      model_(ModelOfReads(reader_.header().loading_threads)),
      moved_(reader_.header().lanes) {}

Status SchedulePolicy::Split(Position at, std::span<const LaneWork> work,
                             std::span<LaneShare> shares) {
  HEADRACE_CHECK(work.size() == moved_.size());
  if (options_.verdict != nullptr) HEADRACE_RETURN_IF_ERROR(options_.verdict->status);
  while (!ended_ && (!begun_ || step_.at < at)) {
    HEADRACE_ASSIGN_OR_RETURN(const bool more, reader_.Next(step_));
    begun_ = true;
    ended_ = !more;
  }
  if (ended_) {
    decodes_.store(0, std::memory_order_relaxed);
    return beyond_->Split(at, work, shares);
  }
  if (step_.at != at) {
    return FailedPrecondition(
        "following schedule {}: the run is at {}, the schedule goes on at {}; "
        "make it again with the options of this run",
        reader_.name(), StepText(at), StepText(step_.at));
  }
  const LaneShares reads = Moved(step_.lanes, moved_);
  for (std::size_t lane = 0; lane < work.size(); ++lane) {
    shares[lane] = {.reads = static_cast<std::uint32_t>(reads[lane]),
                    .decodes = std::max(1U, step_.lanes[lane].decode)};
  }
  planned_.fetch_add(1, std::memory_order_relaxed);
  std::uint32_t decodes = 0;
  for (const LaneThreads& lane : step_.lanes) decodes += lane.decode;
  decodes_.store(decodes, std::memory_order_relaxed);
  if (options_.correct) Correct(work, shares);
  return Status();
}

// Of steps in which the rates of their reads are known.
void SchedulePolicy::Correct(std::span<const LaneWork> work, std::span<const LaneShare> shares) {
  if (!RatesKnown(work)) return;
  Seen seen;
  std::vector<int> decodes;
  for (std::size_t lane = 0; lane < work.size(); ++lane) {
    decodes.push_back(static_cast<int>(shares[lane].decodes));
    seen.shares.push_back(static_cast<int>(shares[lane].reads));
  }
  seen.loads = LoadsOf(work, &LaneWork::queued_bytes, decodes);
  seen_.push_back(std::move(seen));
  if (seen_.size() < static_cast<std::size_t>(options_.corrector.period)) return;
  LookBack();
  seen_.clear();
}

// Planned shares change from step to step; the corrector gets their mean.
void SchedulePolicy::LookBack() {
  const std::size_t lanes = moved_.size();
  std::vector<std::uint64_t> sums(lanes);
  for (const Seen& seen : seen_) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<std::uint64_t>(seen.shares[lane]);
    }
  }
  const std::uint64_t all = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
  const int budget = std::max(static_cast<int>(lanes), static_cast<int>(all / seen_.size()));
  LaneShares mean(lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    mean[lane] = std::max(1, static_cast<int>(sums[lane] / seen_.size()));
  }
  const int rest = budget - std::accumulate(mean.begin(), mean.end(), 0);
  for (int i = 0; i < rest; ++i) ++mean[static_cast<std::size_t>(i) % lanes];
  ShareCorrector corrector(options_.corrector, model_, mean);
  const std::vector<double> not_known(lanes);
  bool changed = false;
  for (const Seen& seen : seen_) changed = corrector.Observe(seen.loads, not_known) || changed;
  if (!changed) return;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    moved_[lane] += corrector.shares()[lane] - mean[lane];
  }
  corrections_.fetch_add(1, std::memory_order_relaxed);
}

LaneCounts SchedulePolicy::counts() const {
  LaneCounts counts = beyond_->counts();
  counts.corrections += corrections_.load(std::memory_order_relaxed);
  const std::uint32_t decodes = decodes_.load(std::memory_order_relaxed);
  if (decodes != 0) counts.decodes = decodes;
  counts.planned = planned_.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace headrace
