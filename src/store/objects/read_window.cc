#include "store/objects/read_window.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

ReadWindow::ReadWindow(const Options& options) : options_(options), limit_(options.start) {
  HEADRACE_CHECK(1 <= options.min && options.min <= options.start && options.start <= options.max);
}

void ReadWindow::Success(std::uint32_t in_flight) {
  if (in_flight < limit_ || ++successes_ < limit_) return;
  limit_ = std::min(limit_ + 1, options_.max);
  successes_ = 0;
}

bool ReadWindow::SlowDown(std::int64_t started_ns, std::int64_t now_ns) {
  if (started_ns <= halved_ns_) return false;
  limit_ = std::max(limit_ / 2, options_.min);
  successes_ = 0;
  halved_ns_ = now_ns;
  return true;
}

}  // namespace headrace
