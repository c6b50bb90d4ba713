#include "plan/quality/nulls.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

namespace headrace::quality {
namespace {

constexpr double kSkewMin = 1e-6;  // below, the distribution is taken as normal
constexpr double kTiny = 1e-12;

double Power(double base, int exponent) {
  double power = 1;
  for (int i = 0; i < exponent; ++i) power *= base;
  return power;
}

}  // namespace

double ZScore(double value, const Null& null) {
  const double off = value - null.mean;
  if (null.sd <= kTiny * std::max(1.0, std::abs(null.mean))) {
    const bool at_mean = std::abs(off) <= 1e-9 * std::max(1.0, std::abs(null.mean));
    return at_mean ? 0 : std::copysign(std::numeric_limits<double>::infinity(), off);
  }
  const double y = off / null.sd;
  if (null.skew < kSkewMin) return y;
  const double inside = null.skew * y / 2 + 1;
  // Below the lower end of the fitted distribution: beyond its end by the same distance.
  if (inside <= 0) return -6 / null.skew + null.skew / 6 + inside;
  return 6 / null.skew * (std::cbrt(inside) - 1) + null.skew / 6;
}

double ValueAt(double z, const Null& null) {
  if (null.skew < kSkewMin) return null.mean + z * null.sd;
  const double root = std::max(0.0, 1 + null.skew * z / 6 - null.skew * null.skew / 36);
  return null.mean + null.sd * 2 / null.skew * (Power(root, 3) - 1);
}

double NormalQuantile(double tail) {
  double low = 0;
  double high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) / 2 > tail ? low : high) = middle;
  }
  return low;
}

GroupSizes SumSizes(std::span<const std::uint32_t> sizes) {
  GroupSizes sums;
  for (const std::uint32_t each : sizes) {
    if (each == 0) continue;
    const double size = each;
    const double falling2 = size * (size - 1);
    sums.total += size;
    sums.groups += 1;
    sums.inverse_sum += 1 / size;
    sums.falling2 += falling2;
    sums.falling3 += falling2 * (size - 2);
    sums.falling4 += falling2 * (size - 2) * (size - 3);
    sums.falling2_squared += falling2 * falling2;
  }
  return sums;
}

Null ChiSquareNull(const GroupSizes& rows, const GroupSizes& groups) {
  const double n = rows.total;
  const double r = rows.groups;
  const double c = groups.groups;
  if (n < 4 || r < 2 || c < 2) return {};
  const double nu_rows = (r - 1) * (n - r) / (n - 1);
  const double nu_groups = (c - 1) * (n - c) / (n - 1);
  const double mu_rows = (n * rows.inverse_sum - r * r) / (n - 2);
  const double mu_groups = (n * groups.inverse_sum - c * c) / (n - 2);
  const double variance = 2 * n / (n - 3) * (nu_rows - mu_rows) * (nu_groups - mu_groups) +
                          n * n / (n - 1) * mu_rows * mu_groups;
  const double freedom = (r - 1) * (c - 1);
  const double cell = n / (r * c);  // samples of a mean cell
  return {.mean = n * freedom / (n - 1),
          .sd = std::sqrt(std::max(0.0, variance)),
          .skew = std::sqrt(8 / freedom) * (1 + 1 / (2 * cell))};
}

Null SegmentNull(double rows, double window, const GroupSizes& groups) {
  const double n = groups.total;
  const double c = groups.groups;
  if (n < 4 || c < 2 || rows < 1 || window >= n) return {};
  const double left = (n - window) / (n - 1);
  const double of_row = 2 * (c - 1) + (n * groups.inverse_sum - c * c - 2 * c + 2) / window;
  const double freedom = rows * (c - 1);
  return {.mean = freedom * left,
          .sd = left * std::sqrt(std::max(0.0, rows * of_row * (1 - c / n))),
          .skew = std::sqrt(8 / freedom) * (1 + c / (2 * window))};
}

Null SamePairsNull(double pairs, double sharing, double disjoint, const GroupSizes& groups) {
  const double n = groups.total;
  if (n < 4) return {};
  const double same = groups.same();
  const double n3 = n * (n - 1) * (n - 2);
  const double n4 = n3 * (n - 3);
  const double three = groups.falling3 / n3;
  const double two_and_two =
      (groups.falling2 * groups.falling2 - groups.falling2_squared + groups.falling4) / n4;
  const double variance = pairs * same * (1 - same) + sharing * (three - same * same) +
                          disjoint * (two_and_two - same * same);
  const double mean = pairs * same;
  return {
      .mean = mean,
      .sd = std::sqrt(std::max(0.0, variance)),
      .skew = mean > 0 ? std::max(0.0, 1 - 2 * same) / std::sqrt(mean * (1 - same) + kTiny) : 0};
}

Null NeighbourEntropyNull(double count, double range) {
  constexpr int kSteps = 2000;
  constexpr int kCountsMax = 48;  // the rate is at most 2
  std::array<double, kCountsMax> bits{};
  for (int f = 1; f < kCountsMax; ++f) bits[static_cast<std::size_t>(f)] = f * std::log2(f);
  double sum = 0;
  double sum_variance = 0;
  double sum_covariance = 0;
  double sum_rate = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double rate = 2 * (1 - (i + 0.5) / kSteps) * count / range;
    double chance = std::exp(-rate);
    double first = 0;
    double second = 0;
    double with_count = 0;
    for (int f = 1; f < kCountsMax; ++f) {
      chance *= rate / f;
      const double h = bits[static_cast<std::size_t>(f)];
      first += chance * h;
      second += chance * h * h;
      with_count += chance * h * f;
    }
    sum += first;
    sum_variance += second - first * first;
    sum_covariance += with_count - first * rate;
    sum_rate += rate;
  }
  const double bins = range / kSteps;  // differences in one step
  const double variance =
      bins * sum_variance - bins * sum_covariance * sum_covariance / std::max(sum_rate, kTiny);
  return {.mean = std::log2(count) - bins * sum / count,
          .sd = std::sqrt(std::max(0.0, variance)) / count};
}

double BridgeUpper(double tail, double groups) {
  return std::sqrt(std::log(2 * groups / tail) / 2);
}

double BridgeLower(double tail) {
  // P(sup < x) = sqrt(2 pi) / x * sum exp(-(2k-1)^2 pi^2 / (8 x^2)); the first term, for small x.
  double low = 0.05;
  double high = 0.8;
  for (int i = 0; i < 60; ++i) {
    const double x = (low + high) / 2;
    const double below = std::sqrt(2 * std::numbers::pi) / x *
                         std::exp(-std::numbers::pi * std::numbers::pi / (8 * x * x));
    (below < tail ? low : high) = x;
  }
  return low;
}

}  // namespace headrace::quality
