#include "model/thread_split.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {
namespace {

// The result of `decode` decode threads, and the rest for loading.
ThreadSplit SplitAt(int decode, const SplitRequest& request, std::span<const LaneLoad> lanes) {
  ThreadSplit split{.loading = request.threads - decode, .decode = decode};
  split.loading_of_lane = MakespanShares(lanes, *request.load, split.loading);
  split.load_seconds = Makespan(lanes, *request.load, split.loading_of_lane);
  const std::uint64_t samples =
      std::accumulate(request.samples.begin(), request.samples.end(), std::uint64_t{0});
  split.preprocess_seconds = static_cast<double>(samples) / request.preprocess->Throughput(decode);
  return split;
}

double Together(const ThreadSplit& split) { return split.load_seconds + split.preprocess_seconds; }

}  // namespace

ThreadSplit SplitLoadAndDecode(const SplitRequest& request) {
  HEADRACE_CHECK(request.load != nullptr && request.preprocess != nullptr);
  HEADRACE_CHECK(!request.lanes.empty() && request.samples.size() == request.lanes.size());
  HEADRACE_CHECK(request.threads > static_cast<int>(request.lanes.size()));
  std::vector<LaneLoad> lanes(request.lanes.begin(), request.lanes.end());
  for (LaneLoad& lane : lanes) lane.preprocess_seconds = 0;  // counted separately

  HEADRACE_CHECK(1 <= request.decode_min && request.decode_min <= request.decode_max);
  const int decode_most =
      std::min(request.threads - static_cast<int>(lanes.size()), request.decode_max);
  const int decode_least = std::min(decode_most, request.decode_min);
  const int peak = std::max(decode_least, request.preprocess->PeakThreads(decode_most));
  ThreadSplit split = SplitAt(peak, request, lanes);
  // One more thread may not help several lanes that are equally late, while two threads help all of
  // them. So all splits are tried, and the first that is in time, or else the shortest, is taken.
  for (int decode = peak - 1; decode >= decode_least && Together(split) > request.train_seconds;
       --decode) {
    ThreadSplit next = SplitAt(decode, request, lanes);
    if (next.preprocess_seconds > std::max(next.load_seconds, request.train_seconds)) break;
    if (Together(next) < Together(split)) split = std::move(next);
  }

  SpreadSpare(lanes, *request.load, split.loading, split.loading_of_lane);
  // Threads that speed up no lane are assigned, too: a lane may be slower than predicted.
  const LaneShares& shares = split.loading_of_lane;
  const int spare = split.loading - std::accumulate(shares.begin(), shares.end(), 0);
  for (int i = 0; i < spare; ++i) {
    ++split.loading_of_lane[static_cast<std::size_t>(i) % lanes.size()];
  }
  split.decode_of_lane = Proportional(request.samples, split.decode);
  return split;
}

}  // namespace headrace
