#include "model/preprocess_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

constexpr double kSecondsMin = 1e-9;  // a clock of nanoseconds measures less as 0

// Half octaves of bytes, ascending; a sample of 0 bytes counts as 1 byte.
int Bucket(std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  const int octave = 63 - std::countl_zero(bytes);
  const bool upper = octave > 0 && ((bytes >> (octave - 1)) & 1U) != 0;
  return 2 * octave + (upper ? 1 : 0);
}

int BucketOf(double bytes) {
  constexpr double kBytesMax = 9.0e18;  // below 2^63, so that it can be converted
  return Bucket(static_cast<std::uint64_t>(std::clamp(bytes, 1.0, kBytesMax)));
}

// Adds a value to a mean: exact up to `window` values, exponentially weighted beyond.
void Add(double value, std::uint64_t window, std::uint64_t& count, double& mean) {
  count = std::min(count + 1, window);
  mean += (value - mean) / static_cast<double>(count);
}

template <typename... Args>
Status WrongRow(std::size_t row, fmt::format_string<Args...> what, Args&&... args) {
  return InvalidArgument("preprocessing model row {}: {}", row,
                         fmt::format(what, std::forward<Args>(args)...));
}

Status CheckRow(std::size_t number, const PreprocessRow& row, std::uint64_t window) {
  if (!(row.bytes >= 1) || !std::isfinite(row.bytes)) {
    return WrongRow(number, "bytes: got {:f}, must be at least 1", row.bytes);
  }
  if (row.threads < 1) {
    return WrongRow(number, "threads: got {}, must be at least 1", row.threads);
  }
  if (row.count < 1 || row.count > window) {
    return WrongRow(number, "count: got {}, must be in [1, {}]", row.count, window);
  }
  if (!(row.seconds > 0) || !std::isfinite(row.seconds)) {
    return WrongRow(number, "seconds: got {:f}, must be above 0 and finite", row.seconds);
  }
  return {};
}

}  // namespace

PreprocessModel::PreprocessModel(const Options& options) : options_(options) {
  HEADRACE_CHECK(options.curves_max > 0 && options.thread_counts_max > 0 && options.window > 0);
}

PreprocessModel::Sized& PreprocessModel::SizedOf(std::uint64_t transform, int bucket) {
  const auto key = std::tuple(transform, bucket);
  const auto place = [&] {
    return std::lower_bound(curves_.begin(), curves_.end(), key,
                            [](const Sized& sized, const auto& k) {
                              return std::tuple(sized.transform, sized.bucket) < k;
                            });
  };
  auto at = place();
  if (at != curves_.end() && std::tuple(at->transform, at->bucket) == key) return *at;
  if (curves_.size() == options_.curves_max) {
    curves_.erase(std::min_element(
        curves_.begin(), curves_.end(),
        [](const Sized& a, const Sized& b) { return a.observed_at < b.observed_at; }));
    at = place();
  }
  at = curves_.emplace(at);
  at->transform = transform;
  at->bucket = bucket;
  return *at;
}

PreprocessModel::Mean& PreprocessModel::MeanOf(Sized& sized, int threads) const {
  std::vector<Mean>& means = sized.means;
  const auto place = [&] {
    return std::lower_bound(means.begin(), means.end(), threads,
                            [](const Mean& mean, int t) { return mean.threads < t; });
  };
  auto at = place();
  if (at != means.end() && at->threads == threads) return *at;
  if (means.size() == options_.thread_counts_max) {
    means.erase(std::min_element(means.begin(), means.end(), [](const Mean& a, const Mean& b) {
      return a.observed_at < b.observed_at;
    }));
    at = place();
  }
  at = means.emplace(at);
  at->threads = threads;
  return *at;
}

void PreprocessModel::Observe(const Observation& observation) {
  HEADRACE_CHECK(observation.threads >= 1);
  ++observed_;
  Sized& sized = SizedOf(observation.transform, Bucket(observation.bytes));
  sized.observed_at = observed_;
  sized.changed = true;
  const auto bytes = static_cast<double>(std::max<std::uint64_t>(observation.bytes, 1));
  Add(bytes, options_.window, sized.count, sized.bytes);
  Mean& mean = MeanOf(sized, observation.threads);
  mean.observed_at = observed_;
  const double seconds = std::max(static_cast<double>(observation.nanoseconds) * 1e-9, kSecondsMin);
  Add(seconds, options_.window, mean.count, mean.seconds);
}

void PreprocessModel::Fit() {
  std::vector<PreprocessCurve::Point> points;
  for (Sized& sized : curves_) {
    if (!std::exchange(sized.changed, false)) continue;
    points.clear();
    for (const Mean& mean : sized.means) {
      points.push_back({.threads = static_cast<double>(mean.threads),
                        .seconds = mean.seconds,
                        .weight = static_cast<double>(mean.count)});
    }
    sized.curve.emplace(points);
  }
}

const PreprocessCurve* PreprocessModel::Find(std::uint64_t transform, double bytes) const {
  const int bucket = BucketOf(bytes);
  const double wanted = std::log2(std::max(bytes, 1.0));
  const Sized* nearest = nullptr;
  double distance_least = 0;
  for (const Sized& sized : curves_) {
    if (sized.transform != transform || !sized.curve) continue;
    if (sized.bucket == bucket) return &*sized.curve;
    const double distance = std::abs(std::log2(sized.bytes) - wanted);
    if (nearest == nullptr || distance < distance_least) {
      nearest = &sized;
      distance_least = distance;
    }
  }
  return nearest == nullptr ? nullptr : &*nearest->curve;
}

std::optional<double> PreprocessModel::Seconds(std::uint64_t transform, double bytes,
                                               int threads) const {
  HEADRACE_CHECK(threads >= 1);
  const PreprocessCurve* const curve = Find(transform, bytes);
  if (curve == nullptr) return std::nullopt;
  return curve->Seconds(threads);
}

std::vector<PreprocessRow> PreprocessModel::ToRows() const {
  std::vector<PreprocessRow> rows;
  for (const Sized& sized : curves_) {
    for (const Mean& mean : sized.means) {
      rows.push_back({.transform = sized.transform,
                      .bytes = sized.bytes,
                      .threads = mean.threads,
                      .count = mean.count,
                      .seconds = mean.seconds});
    }
  }
  return rows;
}

Result<PreprocessModel> PreprocessModel::FromRows(std::span<const PreprocessRow> rows,
                                                  const Options& options) {
  PreprocessModel model(options);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PreprocessRow& row = rows[i];
    HEADRACE_RETURN_IF_ERROR(CheckRow(i, row, options.window));
    const std::size_t curves = model.curves_.size();
    Sized& sized = model.SizedOf(row.transform, BucketOf(row.bytes));
    // A new curve replaced another: the list did not grow.
    if (sized.means.empty() && model.curves_.size() == curves) {
      return WrongRow(i, "more than {} pairs of a transform and a size; give fewer rows",
                      options.curves_max);
    }
    const std::size_t means = sized.means.size();
    Mean& mean = model.MeanOf(sized, row.threads);
    if (mean.count > 0) {
      return WrongRow(i,
                      "the same transform, size and threads ({}) as an earlier row; give each once",
                      row.threads);
    }
    if (sized.means.size() == means) {
      return WrongRow(i, "more than {} numbers of threads of one size; give fewer rows",
                      options.thread_counts_max);
    }
    mean.count = row.count;
    mean.seconds = std::max(row.seconds, kSecondsMin);
    mean.observed_at = ++model.observed_;
    sized.observed_at = model.observed_;
    sized.count = std::max(sized.count, row.count);
    sized.bytes = row.bytes;
    sized.changed = true;
  }
  model.Fit();
  return model;
}

}  // namespace headrace
