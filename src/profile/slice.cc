#include "profile/slice.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "loader/machine/thread_executor.h"

namespace headrace {
namespace {

// What one thread did, from the end of its first operation on.
struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  std::int64_t elapsed_ns = 0;
};

class ThreadSlice {
 public:
  ThreadSlice(int threads, const SliceLimits& limits, const ProbeOperation& operation)
      : limits_(limits),
        operation_(operation),
        working_(threads),
        tallies_(static_cast<std::size_t>(threads)) {}

  Result<Slice> Run(ThreadExecutor& executor) {
    for (int i = 0; i < executor.concurrency(); ++i) {
      executor.Submit(0, [this, i] { Work(i); });
    }
    bool stopped = false;
    MutexLock lock(mutex_);
    while (working_ > 0) {
      changed_.WaitFor(mutex_, kAskEveryNs);
      if (stopped || limits_.keep_going == nullptr || limits_.keep_going()) continue;
      stopped = true;
      stop_ = true;
    }
    if (stopped) return StoppedMeasuring();
    if (!error_.ok()) return error_;
    return Total();
  }

 private:
  void Work(int thread) {
    Tally tally;
    const Status status = Measure(thread, tally);
    MutexLock lock(mutex_);
    tallies_[static_cast<std::size_t>(thread)] = tally;
    if (!status.ok()) {
      stop_ = true;
      if (error_.ok()) error_ = status;
    }
    --working_;
    changed_.NotifyAll();
  }

  Status Measure(int thread, Tally& tally) {
    const std::int64_t start_ns = clock_.NowNanos();
    std::int64_t begin_ns = start_ns;
    for (std::uint64_t round = 0; !stop_; ++round) {
      HEADRACE_ASSIGN_OR_RETURN(const std::uint64_t bytes, operation_(thread, round));
      const std::int64_t now_ns = clock_.NowNanos();
      if (round == 0) {
        begin_ns = now_ns;
        // One operation that takes for ever is all there is to count.
        if (now_ns - start_ns < limits_.duration_max_ns) continue;
        begin_ns = start_ns;
      }
      ++tally.operations;
      tally.bytes += bytes;
      tally.elapsed_ns = now_ns - begin_ns;
      if (tally.elapsed_ns >= limits_.duration_ns) break;
      if (now_ns - start_ns >= limits_.duration_max_ns) break;
    }
    return {};
  }

  Slice Total() const HEADRACE_LOCKS_REQUIRED(mutex_) {
    Slice slice;
    for (const Tally& tally : tallies_) {
      slice.operations += tally.operations;
      slice.bytes += tally.bytes;
      const double seconds =
          1e-9 * static_cast<double>(std::max<std::int64_t>(tally.elapsed_ns, 1));
      slice.rate += static_cast<double>(tally.bytes) / seconds;
      slice.operations_rate += static_cast<double>(tally.operations) / seconds;
    }
    return slice;
  }

  const SliceLimits& limits_;
  const ProbeOperation& operation_;
  const MonotonicClock clock_;
  std::atomic<bool> stop_ = false;

  Mutex mutex_;
  CondVar changed_;
  int working_ HEADRACE_GUARDED_BY(mutex_);
  Status error_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Tally> tallies_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

Result<Slice> MeasureThreads(int threads, const SliceLimits& limits,
                             const ProbeOperation& operation) {
  HEADRACE_CHECK(threads > 0);
  // Made first, destroyed last: its threads use the slice.
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadExecutor> executor,
                            ThreadExecutor::Make({.threads = threads, .name = "headrace-probe"}));
  ThreadSlice slice(threads, limits, operation);
  return slice.Run(*executor);
}

}  // namespace headrace
