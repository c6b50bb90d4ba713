#include "loader/session/owed_wait.h"

#include <algorithm>

namespace headrace {

bool OwedWait::Wait(std::int64_t timeout_ns, const std::function<bool()>& over) {
  const std::int64_t begin_ns = clock_.NowNanos();
  for (;;) {
    std::uint64_t seen = 0;
    {
      MutexLock lock(mutex_);
      seen = changes_;
    }
    std::int64_t wait_ns = std::min(kLookNs, LeftNs(over));
    if (wait_ns <= 0) return true;
    if (timeout_ns >= 0) {
      const std::int64_t left_ns = timeout_ns - (clock_.NowNanos() - begin_ns);
      if (left_ns <= 0) return false;
      wait_ns = std::min(wait_ns, left_ns);
    }
    MutexLock lock(mutex_);
    if (changes_ == seen) static_cast<void>(changed_.WaitFor(mutex_, wait_ns));
  }
}

// How long others may be waited for; 0 or less: they are not, or no longer.
std::int64_t OwedWait::LeftNs(const std::function<bool()>& over) {
  if (cancelled_ || !owes_()) return 0;
  // In this order: a run that begins meanwhile makes `over` true before it gets its number.
  const std::uint64_t round = nodes_.round();
  if (over && over()) return 0;
  const std::int64_t now_ns = clock_.NowNanos();
  std::int64_t left_ns = 0;
  {
    MutexLock lock(round_mutex_);
    if (round_ != round) {
      round_ = round;
      since_ns_ = now_ns;
      nodes_.StopTaking(round);
    }
    left_ns = nodes_.patience_ns() - (now_ns - since_ns_);
  }
  return left_ns > 0 && nodes_.AnyTakes() ? left_ns : 0;
}

void OwedWait::Changed() {
  MutexLock lock(mutex_);
  ++changes_;
  changed_.NotifyAll();
}

void OwedWait::Cancel() {
  cancelled_ = true;
  Changed();
}

}  // namespace headrace
