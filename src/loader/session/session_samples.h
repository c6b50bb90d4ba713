#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "fetch/held_samples.h"
#include "headrace/ids.h"

namespace headrace {

class EngineRun;
class SessionTiers;

// Gives other nodes the samples in a session's tiers, and the parcels of its run. If the plan keeps
// a sample that the tiers do not have yet, the run reads it, unless nodes guess what others have
// (SessionTiers::guesses()). Between the agreement of the nodes and the start of the run
// here, requests wait: other nodes may start earlier.
//
// Thread safety: every method may be called from any thread.
// Ownership: `tiers` outlives it, and so do the entries that it gave.
class SessionSamples final : public HeldSamples {
 public:
  // `tiers` may be null.
  explicit SessionSamples(const SessionTiers* tiers) : tiers_(tiers) {}

  void Take(SampleId sample, std::uint64_t deadline, TakenEntry done) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  void TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // A run is about to start, of which others may ask for parcels by `round`; has started; has
  // ended, or does not start.
  void Expect(std::uint64_t round = 0) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Begin(const std::shared_ptr<EngineRun>& run) HEADRACE_LOCKS_EXCLUDED(mutex_);
  void End() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // As Engine::owes(), of the run.
  [[nodiscard]] bool Owes() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // The most requests for samples of tiers that wait for a run: others read more from storage. For
  // parcels the limit is 2 * kPartsOpenMax for each other node.
  static constexpr std::size_t kWaitingMax = 4096;

  // Passes the request to the run; null: answers that there is none.
  using Request = std::function<void(EngineRun*)>;
  struct Waiting {
    NodeNumber node = kNoNode;  // for which parcels; kNoNode: it is for a sample
    Request request;
  };

  // Whether a request may wait for the run that is expected.
  [[nodiscard]] bool MayWait(NodeNumber node) const HEADRACE_LOCKS_REQUIRED(mutex_);

  const SessionTiers* const tiers_;
  Mutex mutex_;
  bool expected_ HEADRACE_GUARDED_BY(mutex_) = false;
  std::uint64_t round_ HEADRACE_GUARDED_BY(mutex_) = 0;  // of the run, or of the expected one
  std::shared_ptr<EngineRun> run_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Waiting> waiting_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
