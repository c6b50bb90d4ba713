#include "engine/lanes/decode_times.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

void DecodeTimes::OnDecoded(const Decoded& decoded) {
  HEADRACE_CHECK(decoded.samples > 0 && decoded.threads > 0);
  MutexLock lock(mutex_);
  model_.Observe({.transform = transform_,
                  .bytes = std::max<std::uint64_t>(1, decoded.bytes / decoded.samples),
                  .threads = decoded.threads,
                  .nanoseconds = std::max<std::int64_t>(
                      1, decoded.nanoseconds / static_cast<std::int64_t>(decoded.samples))});
}

std::optional<PreprocessCurve> DecodeTimes::CurveOf(double bytes) {
  MutexLock lock(mutex_);
  model_.Fit();
  const PreprocessCurve* const curve = model_.Find(transform_, bytes);
  return curve == nullptr ? std::nullopt : std::optional(*curve);
}

std::vector<PreprocessRow> DecodeTimes::rows() const {
  MutexLock lock(mutex_);
  return model_.ToRows();
}

}  // namespace headrace
