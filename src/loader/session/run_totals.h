#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "headrace/batch.h"
#include "headrace/loader_stats.h"
#include "headrace/part_stats.h"
#include "observe/step_times.h"

namespace headrace {

class EngineRun;

// Statistics of all runs of a session: those that have ended, and the one in progress.
//
// Thread safety: every method may be called from any thread.
class RunTotals {
 public:
  explicit RunTotals(std::uint32_t lanes);

  // `run` has started.
  void Begin(std::shared_ptr<EngineRun> run) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // `run` has been closed. No counter decreases.
  void End(EngineRun& run) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The consumer of `lane` took a batch of run number `run`.
  void OnTaken(std::uint64_t run, std::uint32_t lane, const Batch& batch, std::int64_t taken_ns)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Fills in the engine's and the lane's figures.
  void AddTo(LoaderStats& stats) const HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::vector<StepTime> step_times() const { return steps_.steps(); }

 private:
  StepRecorder steps_;

  mutable Mutex mutex_;
  std::shared_ptr<EngineRun> run_ HEADRACE_GUARDED_BY(mutex_);    // null: none is in progress
  std::vector<Delivered> delivered_ HEADRACE_GUARDED_BY(mutex_);  // by lane
  // By lane: the first batches of its first epoch, at most kStepsRecorded.
  std::vector<std::vector<StepTime>> first_epoch_ HEADRACE_GUARDED_BY(mutex_);
  EngineStats ended_ HEADRACE_GUARDED_BY(mutex_);  // of runs that ended
  std::int64_t ended_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
