#pragma once

// observe/ records the times of batches and computes figures from them: how long steps take, who
// waited for what, how unequal the ranks of a node are.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "headrace/loader_stats.h"

namespace headrace {

inline constexpr std::size_t kStepsRecorded = 4096;

// The newest batches of each lane. Allocates all of its memory at once.
//
// Thread safety: every method may be called from any thread.
class StepRecorder {
 public:
  // Keeps `capacity` batches a lane.
  explicit StepRecorder(std::uint32_t lanes, std::size_t capacity = kStepsRecorded);

  // Drops the lane's oldest batch if it is full.
  void Add(const StepTime& step);
  // Lane after lane, each from its oldest on.
  [[nodiscard]] std::vector<StepTime> steps() const;

 private:
  struct Ring {
    std::vector<StepTime> steps;
    std::size_t oldest = 0;  // once it is full
  };

  const std::size_t capacity_;
  mutable Mutex mutex_;
  std::vector<Ring> rings_ HEADRACE_GUARDED_BY(mutex_);  // by lane
};

Percentiles PercentilesOf(std::vector<std::int64_t> values);

// By lane; `steps` as a recorder gives them.
std::vector<LaneFigures> FiguresOf(std::span<const StepTime> steps, std::uint32_t lanes);

Imbalance ImbalanceOf(std::span<const StepTime> steps, std::uint32_t lanes);

}  // namespace headrace
