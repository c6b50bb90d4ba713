#include "observe/step_times.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace headrace {
namespace {

// Of ascending values, the least that `percent` of 100 of them do not exceed.
std::int64_t NearestRank(std::span<const std::int64_t> ascending, std::size_t percent) {
  const std::size_t rank = (ascending.size() * percent + 99) / 100;
  return ascending[std::max<std::size_t>(rank, 1) - 1];
}

// Of one iteration, by lane.
using Iteration = std::span<const StepTime>;

auto IterationOf(const StepTime& step) { return std::tie(step.run, step.epoch, step.step); }

// The lanes' batches of the iterations that every lane has, and of no others.
std::vector<StepTime> Complete(std::span<const StepTime> steps, std::uint32_t lanes) {
  std::vector<StepTime> all(steps.begin(), steps.end());
  std::sort(all.begin(), all.end(), [](const StepTime& a, const StepTime& b) {
    return std::tie(a.run, a.epoch, a.step, a.lane) < std::tie(b.run, b.epoch, b.step, b.lane);
  });
  std::vector<StepTime> complete;
  for (auto begin = all.cbegin(); begin != all.cend();) {
    const auto end = std::find_if(begin, all.cend(), [begin](const StepTime& each) {
      return IterationOf(each) != IterationOf(*begin);
    });
    if (end - begin == static_cast<std::ptrdiff_t>(lanes)) {
      complete.insert(complete.end(), begin, end);
    }
    begin = end;
  }
  return complete;
}

// Whether nothing lies between two iterations of those that are complete: a lane that lacks one has
// left, or has forgotten all before it.
bool Follows(const StepTime& before, const StepTime& step) {
  if (before.run != step.run) return false;
  if (before.epoch == step.epoch) return before.step + 1 == step.step;
  return before.epoch + 1 == step.epoch && step.step == 0;
}

bool Differ(std::span<const std::int64_t> ns, double most_ns) {
  const auto [least, most] = std::minmax_element(ns.begin(), ns.end());
  return static_cast<double>(*most - *least) > most_ns;
}

// Counts one iteration, `before` being the one before it.
void Count(Iteration before, Iteration steps, Imbalance& counts) {
  std::int64_t began_ns = 0;
  for (const StepTime& each : before) began_ns = std::max(began_ns, each.taken_ns);
  std::vector<std::int64_t> late;
  std::vector<std::int64_t> busy;
  std::vector<std::int64_t> own;
  for (std::size_t lane = 0; lane < steps.size(); ++lane) {
    const StepTime& step = steps[lane];
    late.push_back(std::max<std::int64_t>(0, step.done_ns - began_ns));
    busy.push_back(step.busy_ns);
    own.push_back(step.taken_ns - before[lane].taken_ns - step.waited_ns());
  }
  const std::int64_t step_ns = std::max<std::int64_t>(0, *std::min_element(own.begin(), own.end()));
  ++counts.iterations;
  for (std::size_t i = 0; i < kImbalanceThetas.size(); ++i) {
    const double most_ns = kImbalanceThetas[i] * static_cast<double>(step_ns);
    counts.late[i] += Differ(late, most_ns) ? 1 : 0;
    counts.busy[i] += Differ(busy, most_ns) ? 1 : 0;
  }
}

}  // namespace

StepRecorder::StepRecorder(std::uint32_t lanes, std::size_t capacity)
    : capacity_(capacity), rings_(lanes) {
  HEADRACE_CHECK(capacity > 0);
  for (Ring& ring : rings_) ring.steps.reserve(capacity);
}

void StepRecorder::Add(const StepTime& step) {
  MutexLock lock(mutex_);
  Ring& ring = rings_.at(step.lane);
  if (ring.steps.size() < capacity_) {
    ring.steps.push_back(step);
    return;
  }
  ring.steps[ring.oldest] = step;
  ring.oldest = (ring.oldest + 1) % capacity_;
}

std::vector<StepTime> StepRecorder::steps() const {
  std::vector<StepTime> all;
  MutexLock lock(mutex_);
  for (const Ring& ring : rings_) {
    const auto oldest = ring.steps.begin() + static_cast<std::ptrdiff_t>(ring.oldest);
    all.insert(all.end(), oldest, ring.steps.end());
    all.insert(all.end(), ring.steps.begin(), oldest);
  }
  return all;
}

Percentiles PercentilesOf(std::vector<std::int64_t> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {.count = values.size(),
          .p50_ns = NearestRank(values, 50),
          .p95_ns = NearestRank(values, 95),
          .p99_ns = NearestRank(values, 99)};
}

std::vector<LaneFigures> FiguresOf(std::span<const StepTime> steps, std::uint32_t lanes) {
  std::vector<LaneFigures> figures(lanes);
  std::vector<std::vector<std::int64_t>> step_ns(lanes);
  std::vector<std::vector<std::int64_t>> wait_ns(lanes);
  for (std::size_t i = 1; i < steps.size(); ++i) {
    const StepTime& step = steps[i];
    const StepTime& before = steps[i - 1];
    if (before.lane != step.lane || before.run != step.run) continue;
    LaneFigures& of_lane = figures.at(step.lane);
    step_ns[step.lane].push_back(step.taken_ns - before.taken_ns);
    wait_ns[step.lane].push_back(step.waited_ns());
    of_lane.spanned_ns += step.taken_ns - before.taken_ns;
    for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
      of_lane.stall_ns[cause] += step.stall_ns[cause];
    }
  }
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    figures[lane].step = PercentilesOf(std::move(step_ns[lane]));
    figures[lane].wait = PercentilesOf(std::move(wait_ns[lane]));
  }
  return figures;
}

Imbalance ImbalanceOf(std::span<const StepTime> steps, std::uint32_t lanes) {
  Imbalance counts;
  if (lanes < 2) return counts;
  const std::vector<StepTime> all = Complete(steps, lanes);
  for (std::size_t at = lanes; at < all.size(); at += lanes) {
    if (!Follows(all[at - lanes], all[at])) continue;
    const Iteration rest(all);
    Count(rest.subspan(at - lanes, lanes), rest.subspan(at, lanes), counts);
  }
  const double iterations = std::max(1.0, static_cast<double>(counts.iterations));
  for (double& share : counts.late) share /= iterations;
  for (double& share : counts.busy) share /= iterations;
  return counts;
}

}  // namespace headrace
