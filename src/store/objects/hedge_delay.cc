#include "store/objects/hedge_delay.h"

#include <algorithm>

namespace headrace {

void HedgeDelay::Add(std::int64_t wait_ns) {
  waits_[added_++ % kSamples] = wait_ns;
  if (added_ < kSamplesMin || (added_ - kSamplesMin) % kEvery != 0) return;
  std::array<std::int64_t, kSamples> sorted = waits_;
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(added_, kSamples));
  const auto rank = static_cast<std::size_t>(options_.quantile * static_cast<double>(size));
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(size);
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sorted.begin(), at, end);
  const double delay_ns = options_.factor * static_cast<double>(*at);
  delay_ns_ = std::max(options_.min_ns, static_cast<std::int64_t>(delay_ns));
}

}  // namespace headrace
