#pragma once

#include <cmath>
#include <cstdint>

#include "headrace/status.h"

namespace headrace {

// Virtual time is whole nanoseconds. A simulated job ends with TakesTooLong() once it has taken so
// many, 73 years; one event adds at most half of that, so the clock cannot overflow.
inline constexpr std::int64_t kSimulatedNanosMax = std::int64_t{1} << 61;

// `seconds`, at least 0, in nanoseconds, rounded up.
inline std::int64_t SimulatedNanos(double seconds) {
  constexpr std::int64_t kMost = kSimulatedNanosMax / 2;
  const double nanos = std::ceil(seconds * 1e9);
  return nanos < static_cast<double>(kMost) ? static_cast<std::int64_t>(nanos) : kMost;
}

Status TakesTooLong();  // InvalidArgument

}  // namespace headrace
