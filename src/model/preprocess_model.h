#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/machine_model.h"
#include "headrace/status.h"
#include "model/preprocess_curve.h"

namespace headrace {

// Learns, during the run, how long preprocessing a sample takes: a curve for each size of sample
// and each transform (Liu et al. 2022, section 4.1). The content matters, too (a JPEG of 100 KB
// takes longer than an array), so a transform's hash is part of the key.
//
// Sizes fall into half octaves: [2^k, 1.5 * 2^k) and [1.5 * 2^k, 2^(k + 1)) bytes. A size without
// observations takes the curve of the nearest size, by ratio, of the same transform.
//
// Memory: at most `curves_max` curves of `thread_counts_max` means each. When it is full, the
// curve, or the count of threads, with the oldest observation is dropped.
//
// Thread safety: none; const methods may be called concurrently.
class PreprocessModel {
 public:
  struct Options {
    std::size_t curves_max = 64;
    std::size_t thread_counts_max = 64;  // of one curve
    // Means are exact up to this many observations and exponentially weighted beyond, so that they
    // follow a machine that changes.
    std::uint64_t window = 256;
  };

  // One sample, preprocessed by one thread while `threads` threads (including this one) did the
  // same.
  struct Observation {
    std::uint64_t transform = 0;  // hash of the transform
    std::uint64_t bytes = 0;      // of the stored sample
    int threads = 1;              // at least 1
    std::int64_t nanoseconds = 0;
  };

  // Counts of `options` must be at least 1.
  explicit PreprocessModel(const Options& options);
  PreprocessModel() : PreprocessModel(Options{}) {}

  // O(curves). Lookups see the observation after the next Fit().
  void Observe(const Observation& observation);

  // Fits the curves with observations since the last call.
  void Fit();

  // The curve for samples of this size; null: the transform is unknown, or not fitted yet. Valid
  // until the next Fit() or Observe().
  [[nodiscard]] const PreprocessCurve* Find(std::uint64_t transform, double bytes) const;

  // Seconds of one sample on one of `threads` threads, at least 1. std::nullopt if Find() returns
  // null.
  [[nodiscard]] std::optional<double> Seconds(std::uint64_t transform, double bytes,
                                              int threads) const;

  [[nodiscard]] std::size_t curve_count() const { return curves_.size(); }

  // All means, ordered by transform, size and threads. FromRows() makes the same model from them,
  // except for the ages of observations.
  [[nodiscard]] std::vector<PreprocessRow> ToRows() const;

  // A fitted model. Errors: InvalidArgument  an invalid value, a row that is there twice, more rows
  // than the options have room for; the message names the row
  static Result<PreprocessModel> FromRows(std::span<const PreprocessRow> rows,
                                          const Options& options);

 private:
  struct Mean {
    int threads = 1;
    std::uint64_t count = 0;  // up to the window
    double seconds = 0;
    std::uint64_t observed_at = 0;  // number of the last observation
  };
  struct Sized {
    std::uint64_t transform = 0;
    int bucket = 0;
    std::uint64_t count = 0;  // up to the window
    double bytes = 0;         // mean
    std::uint64_t observed_at = 0;
    std::vector<Mean> means;  // by threads, ascending
    std::optional<PreprocessCurve> curve;
    bool changed = false;
  };

  Sized& SizedOf(std::uint64_t transform, int bucket);
  Mean& MeanOf(Sized& sized, int threads) const;

  Options options_;
  std::uint64_t observed_ = 0;
  std::vector<Sized> curves_;  // by transform, then bucket, ascending
};

}  // namespace headrace
