#include "base/clock.h"

#include <chrono>

namespace headrace {

std::int64_t MonotonicClock::NowNanos() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace headrace
