#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/lanes/lane_policy.h"
#include "model/preprocess_model.h"

namespace headrace {

// The times that decoding takes in a session, measured while it runs.
//
// Thread safety: every method may be called from any thread.
class DecodeTimes final : public DecodeObserver {
 public:
  // `transform`: the hash of the transform of a sample. Starts with the measurements in `model`.
  DecodeTimes(std::uint64_t transform, PreprocessModel model)
      : transform_(transform), model_(std::move(model)) {}

  void OnDecoded(const Decoded& decoded) override HEADRACE_LOCKS_EXCLUDED(mutex_);

  // Of samples of about so many bytes, by all measurements so far. std::nullopt: there are none.
  [[nodiscard]] std::optional<PreprocessCurve> CurveOf(double bytes)
      HEADRACE_LOCKS_EXCLUDED(mutex_);

  // All measurements, in the form of a machine profile.
  [[nodiscard]] std::vector<PreprocessRow> rows() const HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  const std::uint64_t transform_;
  mutable Mutex mutex_;
  PreprocessModel model_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
