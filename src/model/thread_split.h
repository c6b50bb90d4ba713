#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "model/lane_shares.h"
#include "model/preprocess_curve.h"

namespace headrace {

// Divides a node's threads into loading and preprocessing (Liu et al. 2022, section 4.1).

struct SplitRequest {
  static constexpr int kAny = std::numeric_limits<int>::max();

  std::span<const LaneLoad> lanes;         // preprocess_seconds are ignored
  std::span<const std::uint64_t> samples;  // of each lane, to preprocess
  const LoadModel* load = nullptr;
  const PreprocessCurve* preprocess = nullptr;
  int threads = 2;           // more than there are lanes, and up to load->threads_max()
  int decode_min = 1;        // at least so many of them preprocess, if there are so many; not 0
  int decode_max = kAny;     // at most so many of them can; at least decode_min
  double train_seconds = 0;  // T_train of a step
};

struct ThreadSplit {
  int loading = 1;
  int decode = 1;
  double load_seconds = 0;        // of the slowest lane, with the best shares
  double preprocess_seconds = 0;  // of all lanes' samples: decode threads take any lane's
  LaneShares loading_of_lane;     // together `loading`
  LaneShares decode_of_lane;      // together `decode`, in proportion to the samples
};

// Step 1: use the number of decode threads that preprocesses fastest, but leave at least one
// loading thread for each lane. Step 2: while loading and preprocessing together take longer than
// training, and preprocessing does not become the bottleneck, move one thread from decode to
// loading. If that goal cannot be reached, move as many as minimise the sum of both. Deterministic;
// takes O(threads) times MakespanShares().
ThreadSplit SplitLoadAndDecode(const SplitRequest& request);

}  // namespace headrace
