#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "engine/lanes/lane_policy.h"
#include "model/lane_load.h"
#include "model/preprocess_model.h"

namespace headrace {

// Limits the decode threads to a useful number, learned while they decode (Liu et al. 2022, section
// 4.1). If preprocessing is the bottleneck, more threads run; otherwise fewer, to leave memory
// bandwidth and cores to others. The limit changes by one thread every `period` steps. If all
// thread counts measured so far are too few, it tries one more thread, whose effect is unknown.
//
// Thread safety: every method may be called from any thread.
class DecodeLimit final : public DecodeThreads, public DecodeObserver {
 public:
  struct Options {
    LaneBudget budget;
    std::uint64_t transform = 0;  // hash of the transform of a sample
    int period = 8;               // steps, at least 1
    int begin = 16;               // steps at the start, with all threads: the model learns
  };

  // Starts with the measurements in `model`.
  DecodeLimit(const Options& options, PreprocessModel model);

  void OnDecoded(const Decoded& decoded) override;
  // Returns a number between that of lanes and the budget.
  std::uint32_t Threads(std::span<const LaneWork> work) override;

  // The measured preprocessing times, in the form of a machine profile.
  [[nodiscard]] std::vector<PreprocessModel::Row> rows() const;

 private:
  [[nodiscard]] int Wanted(std::span<const LaneWork> work) HEADRACE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const LoadModel load_;
  mutable Mutex mutex_;
  PreprocessModel model_ HEADRACE_GUARDED_BY(mutex_);
  int threads_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t steps_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
