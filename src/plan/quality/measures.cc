#include "plan/quality/measures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/hash.h"

namespace headrace::quality {
namespace {

// Counts of the groups in the current window: a cell is valid if it has the window's stamp.
class WindowCounts {
 public:
  explicit WindowCounts(std::uint64_t group_count) : cells_(group_count) {}

  void StartWindow() { ++stamp_; }
  // Returns how many of the group came before in this window.
  std::uint32_t Add(std::uint32_t group) {
    Cell& cell = cells_[group];
    if (cell.stamp != stamp_) cell = {.stamp = stamp_};
    return cell.count++;
  }

 private:
  struct Cell {
    std::uint32_t stamp = 0;
    std::uint32_t count = 0;
  };
  std::vector<Cell> cells_;
  std::uint32_t stamp_ = 0;
};

double PairsOf(std::span<const std::uint32_t> sizes) {
  double pairs = 0;
  for (const std::uint32_t size : sizes) pairs += static_cast<double>(size) * (size - 1.0) / 2;
  return pairs;
}

}  // namespace

Coverage Cover(std::span<const std::uint32_t> ids, std::span<std::uint32_t> positions) {
  Coverage coverage{.count = ids.size()};
  std::ranges::fill(positions, kAbsent);
  std::vector<bool> again(positions.size());
  for (std::size_t p = 0; p < ids.size(); ++p) {
    const std::uint32_t id = ids[p];
    const std::uint64_t mixed = Mix64(id);
    coverage.ids_xor ^= mixed;
    coverage.ids_sum += mixed;
    if (positions[id] == kAbsent) {
      positions[id] = static_cast<std::uint32_t>(p);
      continue;
    }
    ++coverage.repeats;
    if (!again[id]) ++coverage.duplicated;
    again[id] = true;
  }
  coverage.missing = static_cast<std::uint64_t>(std::ranges::count(positions, kAbsent));
  return coverage;
}

double PositionCorrelation(std::span<const std::uint32_t> ids) {
  const auto n = static_cast<double>(ids.size());
  double mean = 0;
  for (const std::uint32_t id : ids) mean += id;
  mean /= n;
  double products = 0;
  double squares = 0;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    const double off = ids[p] - mean;
    products += off * (static_cast<double>(p) - (n - 1) / 2);
    squares += off * off;
  }
  const double scale = std::sqrt(squares * n * (n * n - 1) / 12);
  return scale > 0 ? products / scale : 0;
}

double SegmentChiSquare(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes,
                        std::uint64_t begin, std::uint64_t end, std::uint64_t window) {
  // Sum of (O - E)^2 / E = n / w * sum of O^2 / c, less w, row by row; O^2 grows by 2 O + 1.
  std::vector<double> inverse(sizes.size());
  for (std::size_t g = 0; g < sizes.size(); ++g) inverse[g] = sizes[g] == 0 ? 0 : 1.0 / sizes[g];
  WindowCounts counts(sizes.size());
  const auto n = static_cast<double>(groups.size());
  double statistic = 0;
  for (std::uint64_t first = begin; first < end; first += window) {
    const std::uint64_t last = std::min(end, first + window);
    const auto width = static_cast<double>(last - first);
    counts.StartWindow();
    double row = 0;
    for (std::uint64_t p = first; p < last; ++p) {
      row += (2.0 * counts.Add(groups[p]) + 1) * inverse[groups[p]];
    }
    statistic += n / width * row - width;
  }
  return statistic;
}

double WindowChiSquare(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes,
                       std::uint64_t window) {
  return SegmentChiSquare(groups, sizes, 0, groups.size(), window);
}

std::vector<std::uint64_t> SameAtLags(std::span<const std::uint32_t> groups, std::uint64_t lags) {
  constexpr std::size_t kPiece = 8192;  // positions that stay in the first-level cache for all lags
  std::vector<std::uint64_t> same(lags);
  for (std::size_t begin = 0; begin < groups.size(); begin += kPiece) {
    for (std::size_t lag = 1; lag <= lags; ++lag) {
      if (begin + lag >= groups.size()) break;
      const std::size_t size = std::min(kPiece, groups.size() - lag - begin);
      const std::uint32_t* left = groups.data() + begin;
      const std::uint32_t* right = left + lag;
      std::uint32_t count = 0;
      for (std::size_t i = 0; i < size; ++i) count += left[i] == right[i] ? 1U : 0U;
      same[lag - 1] += count;
    }
  }
  return same;
}

Gaps MeasureGaps(std::span<const std::uint32_t> positions, std::uint64_t count) {
  constexpr std::uint64_t kBinsMax = std::uint64_t{1} << 20;
  const int shift = std::max(
      0, static_cast<int>(std::bit_width(count)) - static_cast<int>(std::bit_width(kBinsMax)));
  std::vector<std::uint32_t> bins((count >> shift) + 1);
  std::uint64_t pairs = 0;
  for (std::size_t s = 1; s < positions.size(); ++s) {
    const std::uint32_t left = positions[s - 1];
    const std::uint32_t right = positions[s];
    if (left == kAbsent || right == kAbsent) continue;
    ++bins[(left < right ? right - left : left - right) >> shift];
    ++pairs;
  }
  Gaps gaps{.pairs = static_cast<double>(pairs)};
  if (pairs == 0) return gaps;
  const auto n = static_cast<double>(count);
  const double quantile = n * (1 - std::sqrt(0.99));
  std::uint64_t below = 0;
  bool found = false;
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    below += bins[bin];
    // P(distance <= k) = 1 - (n - k)(n - k - 1) / (n (n - 1)) for two different positions.
    const double k = std::min(n - 1, static_cast<double>(((bin + 1) << shift) - 1));
    const double expected = 1 - (n - k) * (n - k - 1) / (n * (n - 1));
    const double share = static_cast<double>(below) / gaps.pairs;
    gaps.ks = std::max(gaps.ks, std::abs(share - expected));
    if (!found && share >= 0.01) {
      found = true;
      gaps.quantile = k / quantile;
    }
  }
  gaps.ks *= std::sqrt(gaps.pairs);
  return gaps;
}

double PrefixDiscrepancy(std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> sizes) {
  struct Running {
    double share = 0;
    double scale = 0;
    double count = 0;
  };
  const auto n = static_cast<double>(groups.size());
  std::vector<Running> running(sizes.size());
  for (std::size_t g = 0; g < sizes.size(); ++g) {
    const double share = sizes[g] / n;
    const double variance = n * share * (1 - share);
    running[g] = {.share = share, .scale = variance > 0 ? 1 / std::sqrt(variance) : 0};
  }
  double most = 0;
  for (std::size_t p = 0; p < groups.size(); ++p) {
    // Between its own positions a group's deviation only falls: check before and after them.
    Running& group = running[groups[p]];
    const auto k = static_cast<double>(p);
    const double before = k * group.share - group.count;
    group.count += 1;
    const double after = group.count - (k + 1) * group.share;
    most = std::max({most, before * group.scale, after * group.scale});
  }
  return most;
}

Sources MeasureSources(std::span<const std::uint32_t> groups, std::uint64_t group_count,
                       std::uint64_t window) {
  Sources sources;
  WindowCounts counts(group_count);
  const auto width = static_cast<double>(window);
  for (std::uint64_t first = 0; first + window <= groups.size(); first += window) {
    counts.StartWindow();
    std::uint64_t squares = 0;
    std::uint32_t most = 0;
    for (std::uint64_t p = first; p < first + window; ++p) {
      const std::uint32_t before = counts.Add(groups[p]);
      squares += 2 * std::uint64_t{before} + 1;
      most = std::max(most, before + 1);
    }
    sources.windows += 1;
    sources.effective += width * width / static_cast<double>(squares);
    sources.min_entropy -= std::log2(most / width);
  }
  if (sources.windows > 0) {
    sources.effective /= sources.windows;
    sources.min_entropy /= sources.windows;
  }
  return sources;
}

Recurrence MeasureRecurrence(std::span<const std::uint32_t> before,
                             std::span<const std::uint32_t> after, std::uint64_t batch) {
  Recurrence found;
  double mean_before = 0;
  double mean_after = 0;
  std::vector<std::uint32_t> sample_at;  // at the later epoch's positions
  for (std::size_t s = 0; s < before.size(); ++s) {
    if (before[s] == kAbsent || after[s] == kAbsent) continue;
    found.common += 1;
    mean_before += before[s];
    mean_after += after[s];
    if (after[s] >= sample_at.size()) sample_at.resize(std::size_t{after[s]} + 1, kAbsent);
    sample_at[after[s]] = before[s];
    const std::size_t old_batch = before[s] / batch;
    const std::size_t new_batch = after[s] / batch;
    if (old_batch >= found.before.size()) found.before.resize(old_batch + 1);
    if (new_batch >= found.after.size()) found.after.resize(new_batch + 1);
    ++found.before[old_batch];
    ++found.after[new_batch];
  }
  if (found.common < 2) return found;
  mean_before /= found.common;
  mean_after /= found.common;
  double products = 0;
  double squares_before = 0;
  double squares_after = 0;
  WindowCounts counts(found.before.size());
  for (std::size_t p = 0; p < sample_at.size(); ++p) {
    if (p % batch == 0) counts.StartWindow();
    if (sample_at[p] == kAbsent) continue;
    found.pairs += counts.Add(static_cast<std::uint32_t>(sample_at[p] / batch));
    const double x = sample_at[p] - mean_before;
    const double y = static_cast<double>(p) - mean_after;
    products += x * y;
    squares_before += x * x;
    squares_after += y * y;
  }
  found.correlation = products / std::sqrt(squares_before * squares_after);
  found.expected =
      PairsOf(found.before) * PairsOf(found.after) / (found.common * (found.common - 1) / 2);
  return found;
}

Redirection MeasureRedirection(std::span<const std::uint32_t> ids,
                               std::span<const std::uint32_t> requested,
                               std::span<const std::uint32_t> positions) {
  Redirection found;
  const std::size_t count = std::min(ids.size(), requested.size());
  std::vector<std::int64_t> late;
  late.reserve(count);
  double redirected = 0;
  double early = 0;
  for (std::size_t p = 0; p < count; ++p) {
    redirected += ids[p] == requested[p] ? 0 : 1;
    const std::uint32_t delivered = positions[requested[p]];
    if (delivered == kAbsent) continue;
    late.push_back(static_cast<std::int64_t>(delivered) - static_cast<std::int64_t>(p));
    early += late.back() < 0 ? 1 : 0;
  }
  if (late.empty()) return found;
  const auto quantile = [&late](double share) {
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(late.size() - 1));
    std::ranges::nth_element(late, late.begin() + at);
    return static_cast<double>(late[static_cast<std::size_t>(at)]);
  };
  found.rate = redirected / static_cast<double>(count);
  found.early_share = early / static_cast<double>(late.size());
  found.late_p50 = quantile(0.5);
  found.late_p99 = quantile(0.99);
  found.late_max = quantile(1);
  return found;
}

double NeighbourEntropy(std::span<const std::uint32_t> ids, std::uint64_t sample_count) {
  if (ids.size() < 2) return 0;
  std::vector<std::uint32_t> counts(sample_count);
  for (std::size_t p = 1; p < ids.size(); ++p) {
    const std::uint32_t left = ids[p - 1];
    const std::uint32_t right = ids[p];
    ++counts[left < right ? right - left : left - right];
  }
  const auto n = static_cast<double>(ids.size() - 1);
  double sum = 0;
  for (const std::uint32_t count : counts) {
    if (count > 1) sum += count * std::log2(static_cast<double>(count));
  }
  return std::log2(n) - sum / n;
}

}  // namespace headrace::quality
