#pragma once

#include <cstdint>

#include "base/mutex.h"

namespace headrace {

// Limits bytes a second, as a token bucket: unused bytes are saved for kSavedNs; one message may
// overdraw it, and the next ones wait for that.
//
// Thread safety: every method may be called from any thread.
class RateBudget {
 public:
  // Longer than the pauses between the attempts of those who wait: PeerNode tries every 20 ms.
  static constexpr std::int64_t kSavedNs = 100'000'000;

  // 0: no limit. Until this is called there is none.
  void Limit(std::uint64_t bytes_per_s, std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Whether bytes may pass now.
  [[nodiscard]] bool MayPass(std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Counts bytes that pass, whether they may or not.
  void Pass(std::uint64_t bytes, std::int64_t now_ns) HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  void Save(std::int64_t now_ns) HEADRACE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  double bytes_per_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;  // 0: no limit
  double saved_bytes_ HEADRACE_GUARDED_BY(mutex_) = 0;   // below 0: overdrawn
  std::int64_t at_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;   // of saved_bytes_
};

}  // namespace headrace
