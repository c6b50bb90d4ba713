#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "fetch/held_samples.h"

namespace headrace {

class EngineRun;
class SessionTiers;

// Gives the samples in a session's tiers to other nodes. What the plan keeps and the tiers lack yet
// is brought by the run. Between the agreement of the nodes and the start of the run here, requests
// wait: other nodes may start earlier.
//
// Thread safety: every method may be called from any thread.
// Ownership: `tiers` outlives it, and so do the entries that it gave.
class SessionShelf final : public HeldSamples {
 public:
  explicit SessionShelf(const SessionTiers& tiers) : tiers_(tiers) {}

  void Take(SampleId sample, TakenEntry done) override HEADRACE_LOCKS_EXCLUDED(mutex_);

  // A run is about to start; has started; has ended, or does not start.
  void Expect() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Begin(const std::shared_ptr<EngineRun>& run) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void End() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // Requests that wait for a run, at most.
  static constexpr std::size_t kWaitingMax = 4096;

  const SessionTiers& tiers_;
  Mutex mutex_;
  bool expected_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::shared_ptr<EngineRun> run_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<std::pair<SampleId, TakenEntry>> waiting_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
