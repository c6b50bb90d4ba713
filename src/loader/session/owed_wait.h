#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/mutex.h"
#include "loader/session/other_nodes.h"

namespace headrace {

// Waits while other nodes may still need samples that only this node has, of a run that its
// consumers have left: docs/design/homes.md.
//
// Thread safety: every method may be called from any thread.
// Ownership: the arguments of the constructor outlive it.
class OwedWait {
 public:
  // How often the other nodes are looked at, which do not notify: ParcelTakers asks each every 100
  // ms.
  static constexpr std::int64_t kLookNs = 50'000'000;

  // `owes`: whether the run still has samples for other nodes, or sends them some now.
  OwedWait(const Clock& clock, OtherNodes& nodes, std::function<bool()> owes)
      : clock_(clock), nodes_(nodes), owes_(std::move(owes)) {}

  // Waits up to `timeout_ns` (negative: as long as others may need it). `over`: whether a newer
  // run has replaced the one that the caller means; empty: the caller means the newest. Returns
  // false if others may still need it.
  bool Wait(std::int64_t timeout_ns, const std::function<bool()>& over = {})
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  // The result of `owes` may have changed.
  void Changed() HEADRACE_LOCKS_EXCLUDED(mutex_);
  // From now on nobody waits.
  void Cancel() HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  [[nodiscard]] std::int64_t LeftNs(const std::function<bool()>& over)
      HEADRACE_LOCKS_EXCLUDED(round_mutex_);

  const Clock& clock_;
  OtherNodes& nodes_;
  const std::function<bool()> owes_;
  std::atomic<bool> cancelled_ = false;

  // Held for moments only: Changed() is called with locks of the engine and of its memory.
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t changes_ HEADRACE_GUARDED_BY(mutex_) = 0;

  Mutex round_mutex_;
  // The run that others may be behind in, and since when they are waited for.
  std::uint64_t round_ HEADRACE_GUARDED_BY(round_mutex_) = 0;
  std::int64_t since_ns_ HEADRACE_GUARDED_BY(round_mutex_) = 0;
};

}  // namespace headrace
