#include "store/objects/store_pause.h"

#include <algorithm>

namespace headrace {

std::int64_t JitterNs(std::int64_t first_ns, std::int64_t max_ns, std::uint32_t failures,
                      Prng& prng) {
  std::int64_t end_ns = first_ns;
  for (std::uint32_t i = 1; i < failures && end_ns < max_ns; ++i) end_ns *= 2;
  return static_cast<std::int64_t>(
      prng.Below(static_cast<std::uint64_t>(std::min(end_ns, max_ns))));
}

void StorePause::SlowDown(std::optional<std::int64_t> retry_after_ns, bool fresh,
                          std::int64_t now_ns) {
  if (!slow_ns_) slow_ns_ = now_ns;
  std::int64_t wait_ns = 0;
  if (retry_after_ns) {
    wait_ns = std::clamp<std::int64_t>(*retry_after_ns, 0, options_.retry_after_max_ns);
  } else if (fresh) {
    wait_ns = JitterNs(options_.first_ns, options_.max_ns, failures_ + 1, prng_);
  }
  if (fresh) ++failures_;
  resume_ns_ = std::max(resume_ns_, now_ns + wait_ns);
}

void StorePause::Success() {
  failures_ = 0;
  slow_ns_.reset();
}

}  // namespace headrace
