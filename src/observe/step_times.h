#pragma once

// observe/ keeps what happened to batches, and makes figures of it that people can read:
// how long steps take, who waited for what, how unevenly the ranks of a node got on.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/members.h"
#include "base/mutex.h"
#include "engine/engine_stats.h"

namespace headrace {

// One batch of one rank that its consumer took. Nanoseconds of the system's monotonic clock, which
// all processes of a machine share.
struct StepTime {
  std::uint64_t run = 0;  // number of the run: its first batch was not read ahead
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t lane = 0;
  std::int64_t admitted_ns = 0;  // its reads began
  std::int64_t read_ns = 0;      // all of its bytes were there
  std::int64_t done_ns = 0;      // and decoded
  std::int64_t busy_ns = 0;      // BatchTimes::busy_ns
  std::int64_t handed_ns = 0;    // those before it were, too
  std::int64_t taken_ns = 0;
  std::array<std::int64_t, kStallCauses> stall_ns{};  // waited for it, by StallCause
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // stored, of the samples decoded

  [[nodiscard]] std::int64_t waited_ns() const {
    std::int64_t all = 0;
    for (const std::int64_t ns : stall_ns) all += ns;
    return all;
  }
};
HEADRACE_MEMBERS(StepTime, run, epoch, step, lane, admitted_ns, read_ns, done_ns, busy_ns,
                 handed_ns, taken_ns, stall_ns, samples, bytes)

inline constexpr std::size_t kStepsRecorded = 4096;

// The newest batches of each lane, in memory that is taken at once.
//
// Thread safety: every method may be called from any thread.
class StepRecorder {
 public:
  // Keeps `capacity` batches a lane.
  explicit StepRecorder(std::uint32_t lanes, std::size_t capacity = kStepsRecorded);

  // Forgets the lane's oldest if it keeps as many as it may.
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

// By nearest rank; zeros of nothing.
struct Percentiles {
  std::uint64_t count = 0;
  std::int64_t p50_ns = 0;
  std::int64_t p95_ns = 0;
  std::int64_t p99_ns = 0;
};
HEADRACE_MEMBERS(Percentiles, count, p50_ns, p95_ns, p99_ns)
Percentiles PercentilesOf(std::vector<std::int64_t> values);

// What batches of one lane say, without the first of each run: before it there is no step.
struct LaneFigures {
  Percentiles step;                                   // from one batch taken to the next
  Percentiles wait;                                   // of a batch
  std::int64_t spanned_ns = 0;                        // sum over steps
  std::array<std::int64_t, kStallCauses> stall_ns{};  // of these steps, by StallCause
};
HEADRACE_MEMBERS(LaneFigures, step, wait, spanned_ns, stall_ns)

// By lane; `steps` as a recorder gives them.
std::vector<LaneFigures> FiguresOf(std::span<const StepTime> steps, std::uint32_t lanes);

// How unevenly ranks that train in step get on: shares of iterations in which the slowest differs
// from the fastest by more than a part of the step time, which is what the training itself takes:
// the least of any lane from one batch taken to the next one asked for.
inline constexpr std::array<double, 3> kImbalanceThetas = {0.05, 0.1, 0.2};
struct Imbalance {
  std::uint64_t iterations = 0;  // of which every lane's batch is known, and that before it
  // By theta: in how long after the last rank took the step before their batch was done ...
  std::array<double, kImbalanceThetas.size()> late{};
  // ... and in what their engine's lanes were busy for, whoever waits for it.
  std::array<double, kImbalanceThetas.size()> busy{};
};
HEADRACE_MEMBERS(Imbalance, iterations, late, busy)
Imbalance ImbalanceOf(std::span<const StepTime> steps, std::uint32_t lanes);

}  // namespace headrace
