#include "papers/lobster/decode_limit.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "model/thread_split.h"
#include "papers/lobster/lobster_policy.h"

namespace headrace {
namespace {

// As shares of the time of everything else: below the first decoding is fast enough, above the
// second it is late.
constexpr double kEnough = 0.7;
constexpr double kLate = 0.9;

}  // namespace

DecodeLimit::DecodeLimit(const Options& options, DecodeTimes& times)
    : options_(options),
      load_(ModelOfReads(options.budget.reads + options.budget.decodes)),
      times_(times),
      threads_(static_cast<int>(options.budget.decodes)) {
  HEADRACE_CHECK(options.budget.reads > 0 && options.budget.decodes > 0 && options.period > 0);
}

std::uint32_t DecodeLimit::Threads(std::span<const LaneWork> work) {
  MutexLock lock(mutex_);
  const auto most = static_cast<int>(options_.budget.decodes);
  const auto least = std::min(static_cast<int>(work.size()), most);
  ++steps_;
  if (steps_ > static_cast<std::uint64_t>(options_.begin) &&
      steps_ % static_cast<std::uint64_t>(options_.period) == 0) {
    const int wanted = Wanted(work);
    threads_ += wanted > threads_ ? 1 : wanted < threads_ ? -1 : 0;
  }
  threads_ = std::clamp(threads_, least, most);
  return static_cast<std::uint32_t>(threads_);
}

int DecodeLimit::Wanted(std::span<const LaneWork> work) {
  const auto most = static_cast<int>(options_.budget.decodes);
  // Only this step's work: waiting work of other steps belongs to those steps.
  const std::vector<LaneLoad> lanes = LoadsOf(work, &LaneWork::step_reads);
  std::vector<std::uint64_t> samples(work.size());
  std::vector<std::uint64_t> lane_bytes(work.size());
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  const double train_seconds = TrainSeconds(work);
  for (std::size_t i = 0; i < work.size(); ++i) {
    samples[i] = work[i].step_samples;
    lane_bytes[i] = work[i].step_bytes;
    count += work[i].step_samples;
    bytes += work[i].step_bytes;
  }
  if (count == 0 || bytes == 0 || train_seconds <= 0 ||
      most + static_cast<int>(options_.budget.reads) <= static_cast<int>(work.size())) {
    return most;
  }
  const double mean = static_cast<double>(bytes) / static_cast<double>(count);
  const std::optional<PreprocessCurve> curve = times_.CurveOf(mean);
  if (!curve.has_value()) return most;
  // Of the lane that ends last: a thread serves one lane, as policies share them.
  const auto seconds = [&](int threads) {
    const LaneShares shares = Proportional(lane_bytes, threads);
    double slowest = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      slowest = std::max(slowest, static_cast<double>(lane_bytes[i]) / std::max(shares[i], 1));
    }
    return slowest / mean * threads / curve->Throughput(threads);
  };
  const ThreadSplit split =
      SplitLoadAndDecode({.lanes = lanes,
                          .samples = samples,
                          .load = &load_,
                          .preprocess = &*curve,
                          .threads = most + static_cast<int>(options_.budget.reads),
                          .train_seconds = train_seconds});
  const double others = std::max(split.load_seconds, train_seconds);
  // Try fewer threads while they keep up well with training and loading.
  int wanted = std::min(split.decode, most);
  while (wanted > 1 && seconds(wanted - 1) <= kEnough * others) --wanted;
  const bool late = seconds(threads_) > kLate * others;
  if (late && threads_ < most && curve->knots().back().threads < threads_ + 1) return threads_ + 1;
  return std::min(wanted, most);
}

}  // namespace headrace
