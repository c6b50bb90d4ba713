#pragma once

#include <memory>
#include <utility>

#include "base/mutex.h"
#include "fetch/held_samples.h"

namespace headrace {

// The samples that a node gives now, and a count of their users, so that the owner can take them
// back.
//
// Thread safety: every method may be called from any thread.
class LeasedSamples {
 public:
  // An entry in use. LeasedSamples outlives it.
  class Lease {
   public:
    explicit Lease(LeasedSamples& samples) : samples_(samples) {}
    ~Lease() { samples_.Leave(); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    LeasedSamples& samples_;
  };

  // As HeldSamples::Take(). The entry that `done` gets must be released before the lease.
  //
  // Errors: Unavailable  nothing is given now
  using Done = std::function<void(Result<Tier::EntryRef>, std::shared_ptr<Lease>)>;
  void Take(SampleId sample, std::uint64_t deadline, Done done) HEADRACE_LOCKS_EXCLUDED(mutex_);

  // As HeldSamples::TakeParcel(). Unavailable: nothing is given now.
  void TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // From now on samples come from `held`, which may be null. Returns when no entry that was given
  // before is in use.
  void Give(HeldSamples* held) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Whether Give() waits: who uses an entry has to let it go soon, used or not.
  [[nodiscard]] bool withdraws() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return withdraws_;
  }

 private:
  std::pair<HeldSamples*, std::shared_ptr<Lease>> Enter() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void Leave() HEADRACE_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar left_;
  HeldSamples* held_ HEADRACE_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t in_use_ HEADRACE_GUARDED_BY(mutex_) = 0;
  bool withdraws_ HEADRACE_GUARDED_BY(mutex_) = false;
};

}  // namespace headrace
