#include "engine/lanes/stall_meter.h"

#include <cstddef>
#include <utility>

namespace headrace {
namespace {

constexpr std::int64_t kStepsAveraged = 8;

}  // namespace

void StallMeter::OnTaken(std::int64_t now_ns) {
  LearnStep(now_ns);
  taken_ns_ = now_ns;
}

void StallMeter::OnWaiting(std::int64_t now_ns) {
  if (waiting_) return;
  waiting_ = true;
  began_ns_ = now_ns;
  since_ns_ = now_ns;
  LearnStep(now_ns);
}

void StallMeter::OnBatch() {
  waiting_ = false;
  taken_ns_.reset();
}

std::int64_t StallMeter::Account(std::int64_t now_ns) {
  if (!waiting_ || now_ns <= since_ns_) return 0;
  const std::int64_t ns = now_ns - std::exchange(since_ns_, now_ns);
  stall_ns_[static_cast<std::size_t>(cause_)] += ns;
  return ns;
}

StallTimes StallMeter::TakeNew() {
  StallTimes since{};
  for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
    since[cause] = stall_ns_[cause] - std::exchange(told_ns_[cause], stall_ns_[cause]);
  }
  return since;
}

void StallMeter::LearnStep(std::int64_t now_ns) {
  const std::optional<std::int64_t> taken_ns = std::exchange(taken_ns_, std::nullopt);
  if (!taken_ns.has_value()) return;
  const std::int64_t ns = now_ns - *taken_ns;
  step_ns_ += step_ns_ == 0 ? ns : (ns - step_ns_) / kStepsAveraged;
}

}  // namespace headrace
