#pragma once

#include <cstdint>
#include <span>

#include "base/mutex.h"
#include "engine/lanes/decode_times.h"
#include "engine/lanes/lane_policy.h"
#include "model/lane_load.h"

namespace headrace {

// Limits the decode threads to a useful number, by the times measured while they decode (Liu et al.
// 2022, section 4.1). If preprocessing is the bottleneck, more threads run; otherwise fewer, to
// leave memory bandwidth and cores to others. The limit changes by one thread every `period` steps.
// If all thread counts measured so far are too few, it tries one more thread, whose effect is
// unknown.
//
// Thread safety: every method may be called from any thread.
class DecodeLimit final {
 public:
  struct Options {
    LaneBudget budget;
    int period = 8;  // steps, at least 1
    int begin = 16;  // steps at the start, with all threads: times are measured
  };

  // `times` outlives it.
  DecodeLimit(const Options& options, DecodeTimes& times);

  // How many decode threads are of use: between the number of lanes and the budget. A policy asks
  // once a step.
  std::uint32_t Threads(std::span<const LaneWork> work) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  [[nodiscard]] int Wanted(std::span<const LaneWork> work) HEADRACE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const LoadModel load_;
  DecodeTimes& times_;
  Mutex mutex_;
  int threads_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t steps_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
