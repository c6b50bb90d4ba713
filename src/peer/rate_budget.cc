#include "peer/rate_budget.h"

#include <algorithm>

#include "base/units.h"

namespace headrace {

void RateBudget::Limit(std::uint64_t bytes_per_s, std::int64_t now_ns) {
  MutexLock lock(mutex_);
  bytes_per_ns_ = static_cast<double>(bytes_per_s) / static_cast<double>(kNsPerSecond);
  saved_bytes_ = bytes_per_ns_ * static_cast<double>(kSavedNs);
  at_ns_ = now_ns;
}

bool RateBudget::MayPass(std::int64_t now_ns) {
  MutexLock lock(mutex_);
  if (bytes_per_ns_ == 0) return true;
  Save(now_ns);
  return saved_bytes_ > 0;
}

void RateBudget::Pass(std::uint64_t bytes, std::int64_t now_ns) {
  MutexLock lock(mutex_);
  if (bytes_per_ns_ == 0) return;
  Save(now_ns);
  saved_bytes_ -= static_cast<double>(bytes);
}

void RateBudget::Save(std::int64_t now_ns) {
  const auto passed_ns = static_cast<double>(std::max<std::int64_t>(0, now_ns - at_ns_));
  at_ns_ = std::max(at_ns_, now_ns);
  saved_bytes_ = std::min(saved_bytes_ + passed_ns * bytes_per_ns_,
                          bytes_per_ns_ * static_cast<double>(kSavedNs));
}

}  // namespace headrace
