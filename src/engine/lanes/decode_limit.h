#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "engine/lanes/lane_policy.h"
#include "model/lane_load.h"
#include "model/preprocess_model.h"

namespace headrace {

// How many of the decode threads are of use, learned while they decode (Liu et al. 2022, section
// 4.1). While preprocessing is not what everything waits for, fewer run, so that memory bandwidth
// and cores are left to others; when it is, more. It moves by one thread every `period` steps. More
// threads than ever ran at once are tried where those are not enough: nobody knows what they give.
//
// Thread safety: every method may be called from any thread.
class DecodeLimit final : public DecodeThreads, public DecodeObserver {
 public:
  struct Options {
    LaneBudget budget;
    std::uint64_t transform = 0;  // hash of what is done to a sample
    int period = 8;               // steps, at least 1
    int begin = 16;               // steps at the start, with all threads: the model learns
  };

  // Goes on from what `model` knows.
  DecodeLimit(const Options& options, PreprocessModel model);

  void OnDecoded(const Decoded& decoded) override;
  // Between the number of lanes and the budget.
  std::uint32_t Threads(std::span<const LaneWork> work) override;

  // What was learned, as a machine profile keeps it.
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
