#pragma once

#include <cstdint>

namespace headrace {

// The current time. Classes receive a Clock in their constructor: CLOCK_MONOTONIC in production, a
// virtual clock in the simulator.
//
// Thread safety: NowNanos() may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;

  // Nanoseconds since an arbitrary start; never goes back.
  [[nodiscard]] virtual std::int64_t NowNanos() const = 0;
};

// The system's CLOCK_MONOTONIC. Thread safety: as Clock.
class MonotonicClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t NowNanos() const override;
};

}  // namespace headrace
