#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/units.h"
#include "headrace/status.h"

namespace headrace {

// The number of a call that begins or ends a run. Later calls have larger ones.
enum class RunTurn : std::uint64_t {};

// Begins and ends the runs of a job; at most one run exists at a time. A `Run` has
// Close(timeout_ns), which ends the run and returns true when its reads have ended, too; it is
// called again until then.
//
// A run begins in three steps:
//   1. The previous run is closed. This takes as long as its reads take.
//   2. `plan` makes what the run needs, which may take seconds. No lock is held.
//   3. `start` starts the run.
// Before each step, a Begin() whose turn is not the newest gives up. End() ends only runs with an
// older turn than its own. So an older call never affects a newer run, and End() never waits longer
// than its argument allows.
//
// Thread safety: every method may be called from any thread. The functions passed are called by one
// thread at a time; `start` and `closed` are called with the lock held, so they must not call this
// object.
// Shutdown: call Close() before the destructor.
template <typename Run>
class RunLifecycle {
 public:
  // `closed` is called with each run once it is closed.
  RunLifecycle(const Clock& clock, std::function<void(Run&)> closed)
      : clock_(clock), closed_(std::move(closed)) {}
  RunLifecycle(const RunLifecycle&) = delete;
  RunLifecycle& operator=(const RunLifecycle&) = delete;

  // Takes the turn for one call of Begin(), or for one or more calls of End() that belong together.
  // From now on no run with an older turn starts.
  [[nodiscard]] RunTurn TakeTurn() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    newest_ = RunTurn{static_cast<std::uint64_t>(newest_) + 1};
    changed_.NotifyAll();
    return newest_;
  }

  // `plan` returns a Result; `start` gets its value and returns the run.
  //
  // Errors: Cancelled  Cancel() was called, or a newer turn was taken
  //         those of `plan`; the previous run has ended
  template <typename Plan, typename Start>
  Result<std::shared_ptr<Run>> Begin(RunTurn turn, Plan plan, Start start)
      HEADRACE_LOCKS_EXCLUDED(mutex_) {
    HEADRACE_RETURN_IF_ERROR(AwaitTurn(turn));
    auto planned = plan();
    MutexLock lock(mutex_);
    planning_ = false;
    ending_since_ns_.reset();
    changed_.NotifyAll();
    if (cancelled_) return Closed();
    if (turn != newest_) return Overtaken();
    HEADRACE_RETURN_IF_ERROR(planned.status());
    run_ = start(std::move(planned).value());
    return run_;
  }

  // Ends the run and waits up to `timeout_ns` for its reads (negative: no limit, but Cancel() ends
  // the wait). Returns false if some reads are still in flight, or if a run is still being planned;
  // that run then does not start. Does nothing to a run with a newer turn.
  bool End(RunTurn turn, std::int64_t timeout_ns) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    const std::int64_t begin_ns = clock_.NowNanos();
    MutexLock lock(mutex_);
    for (;;) {
      if (begun_ > turn) return true;  // The run before it has ended.
      std::int64_t slice_ns = kSliceNs;
      if (timeout_ns >= 0) {
        slice_ns =
            std::clamp<std::int64_t>(timeout_ns - (clock_.NowNanos() - begin_ns), 0, kSliceNs);
      }
      if (!planning_ && CloseRun(slice_ns)) return true;
      if (!ending_since_ns_.has_value()) ending_since_ns_ = begin_ns;
      if (slice_ns == 0 || (timeout_ns < 0 && cancelled_)) return false;
      static_cast<void>(changed_.WaitFor(mutex_, slice_ns));
    }
  }

  // Whether a run with a newer turn has begun: End() of this turn does nothing any more.
  [[nodiscard]] bool HasBegunAfter(RunTurn turn) const HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return begun_ > turn;
  }

  // From now on no run starts. Ends all waits that have no time limit.
  void Cancel() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }

  // Ends the run and waits for all of its reads. No run starts any more. No other call may be in
  // progress.
  void Close() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    cancelled_ = true;
    static_cast<void>(CloseRun(-1));
  }

  // Returns `ns` minus the time since the run was first asked to end; `ns` if nobody asked.
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (!ending_since_ns_.has_value()) return ns;
    return std::max<std::int64_t>(0, ns - (clock_.NowNanos() - *ending_since_ns_));
  }

 private:
  // Longest time that a wait for reads holds the lock.
  static constexpr std::int64_t kSliceNs = 5 * kNsPerMs;

  static Status Overtaken() {
    return {StatusCode::kCancelled, "starting a run: another thread stopped it before it began"};
  }
  static Status Closed() {
    return {StatusCode::kCancelled, "starting a run: the loader was closed"};
  }

  // Step 1. When it returns OK, the caller is the only one that plans a run.
  Status AwaitTurn(RunTurn turn) HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    for (;;) {
      if (cancelled_) {
        if (run_ == nullptr) return Closed();
        return {StatusCode::kCancelled,
                "starting a run: the loader was closed while reads of the run before it were still "
                "out"};
      }
      if (turn != newest_) return Overtaken();
      if (planning_) {
        changed_.Wait(mutex_);
      } else if (CloseRun(kSliceNs)) {
        planning_ = true;
        begun_ = turn;
        return Status();
      } else {
        static_cast<void>(changed_.WaitFor(mutex_, kSliceNs));
      }
    }
  }

  bool CloseRun(std::int64_t timeout_ns) HEADRACE_LOCKS_REQUIRED(mutex_) {
    if (run_ != nullptr) {
      if (!run_->Close(timeout_ns)) return false;
      closed_(*run_);
      run_ = nullptr;
    }
    ending_since_ns_.reset();
    return true;
  }

  const Clock& clock_;
  const std::function<void(Run&)> closed_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Run> run_ HEADRACE_GUARDED_BY(mutex_);
  RunTurn newest_ HEADRACE_GUARDED_BY(mutex_){};
  RunTurn begun_ HEADRACE_GUARDED_BY(mutex_){};        // the newest turn that reached step 2
  bool planning_ HEADRACE_GUARDED_BY(mutex_) = false;  // a thread is at step 2
  bool cancelled_ HEADRACE_GUARDED_BY(mutex_) = false;
  // When the run, or its planning, was first asked to end; std::nullopt if nobody asked, or it has
  // ended.
  std::optional<std::int64_t> ending_since_ns_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
