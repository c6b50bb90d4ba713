#include "plan/quality/quality.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/format/errors.h"
#include "base/hash.h"
#include "base/units.h"
#include "plan/quality/measures.h"

namespace headrace {
namespace {

using quality::kAbsent;
using quality::kCells;
using quality::kEndShare;
using quality::kSuperGroups;
using quality::Null;

constexpr std::uint64_t kGroupsMax = 128;  // M6: more groups are merged into kSuperGroups
constexpr std::uint64_t kLagsMax = 128;    // M4
constexpr std::uint64_t kLabelsMax = std::uint64_t{1} << 20;  // more only with more samples

std::vector<std::uint32_t> GroupsOf(const QualityOptions& options) {
  if (options.blocks == nullptr) return *options.labels;
  std::vector<std::uint32_t> groups(options.sample_count);
  for (std::uint64_t i = 0; i < options.blocks->block_count(); ++i) {
    const BlockMap::Block block = options.blocks->block(i);
    const std::span run(groups.data() + Raw(block.first), block.count);
    std::ranges::fill(run, static_cast<std::uint32_t>(i));
  }
  return groups;
}

std::vector<std::uint32_t> CountGroups(std::span<const std::uint32_t> groups,
                                       std::uint64_t group_count) {
  std::vector<std::uint32_t> sizes(group_count);
  for (const std::uint32_t group : groups) ++sizes[group];
  return sizes;
}

quality::GroupSizes RowSizes(std::uint64_t count, std::uint64_t window) {
  std::vector<std::uint32_t> rows(count / window, static_cast<std::uint32_t>(window));
  if (count % window != 0) rows.push_back(static_cast<std::uint32_t>(count % window));
  return quality::SumSizes(rows);
}

}  // namespace

Result<std::unique_ptr<QualityMeter>> QualityMeter::Make(QualityOptions options) {
  const std::uint64_t n = options.sample_count;
  if (n == 0 || n >= kAbsent) {
    return InvalidArgument("measuring an order: got {}, must be in [1, 2^32 - 2]",
                           Counted(n, "sample"));
  }
  if (options.batch == 0 || options.batch >= kAbsent) {
    return InvalidArgument("measuring an order: got batches of {}, must be in [1, 2^32 - 2]",
                           options.batch);
  }
  if (options.blocks == nullptr ? options.labels == nullptr : options.blocks->sample_count() != n) {
    return InvalidArgument(
        "measuring an order of {}: got {}, must be blocks of all samples, or a label for each",
        Counted(n, "sample"),
        options.blocks == nullptr
            ? "neither blocks nor labels"
            : "blocks of " + Counted(options.blocks->sample_count(), "sample"));
  }
  if (options.labels != nullptr && options.labels->size() != n) {
    return InvalidArgument("measuring an order of {}: got {}, must be one for each sample",
                           Counted(n, "sample"), Counted(options.labels->size(), "label"));
  }
  if (options.labels != nullptr) {
    const std::uint64_t most = std::max(n, kLabelsMax);
    const std::uint32_t largest = *std::ranges::max_element(*options.labels);
    if (largest >= most) {
      return InvalidArgument(
          "measuring an order of {}: got label {}, must be below {}; number the labels 0, 1, ...",
          Counted(n, "sample"), largest, most);
    }
  }
  if (options.costs != nullptr && options.costs->size() != n) {
    return InvalidArgument("measuring an order of {}: got {}, must be one for each sample",
                           Counted(n, "sample"), Counted(options.costs->size(), "cost"));
  }
  for (const std::uint64_t window : options.windows) {
    if (window < 2 || window >= kAbsent) {
      return InvalidArgument("measuring an order: got a window of {}, must be in [2, 2^32 - 2]",
                             Counted(window, "sample"));
    }
  }
  return std::unique_ptr<QualityMeter>(new QualityMeter(std::move(options)));
}

QualityMeter::QualityMeter(QualityOptions options)
    : options_(std::move(options)),
      group_of_(GroupsOf(options_)),
      positions_(options_.sample_count, kAbsent),
      seen_(options_.sample_count),
      by_place_(quality::Lateness::ByPlace(options_.sample_count)) {
  group_count_ = std::uint64_t{*std::ranges::max_element(group_of_)} + 1;
  if (options_.costs != nullptr) by_cost_ = quality::Lateness::ByCost(*options_.costs);
}

void QualityMeter::Add(std::span<const std::uint64_t> ids) {
  for (const std::uint64_t id : ids) {
    if (id >= options_.sample_count || ids_.size() + 1 >= kAbsent) {
      ++so_far_.unknown;
    } else {
      ids_.push_back(static_cast<std::uint32_t>(id));
    }
  }
}

void QualityMeter::AddRequested(std::span<const std::uint64_t> ids) {
  for (const std::uint64_t id : ids) {
    if (id < options_.sample_count) requested_.push_back(static_cast<std::uint32_t>(id));
  }
}

void QualityMeter::EndEpoch() {
  if (ids_.empty()) return;
  MeasureCoverage();
  std::vector<std::uint32_t> groups(ids_.size());
  for (std::size_t p = 0; p < ids_.size(); ++p) groups[p] = group_of_[ids_[p]];
  const std::vector<std::uint32_t> sizes = CountGroups(groups, group_count_);
  const quality::GroupSizes sums = quality::SumSizes(sizes);
  MeasureWindows(groups, sizes);
  MeasureEnds(groups, sizes);
  MeasureMates(groups, sums);
  MeasureBatches(groups, group_count_, sums);
  MeasurePrefixes(groups, group_count_);
  MeasurePositions();
  if (so_far_.epochs > 0) MeasureEpochs();
  by_place_.Add(ids_);
  by_cost_.Add(ids_);
  ++so_far_.epochs;
  so_far_.positions += ids_.size();
  positions_before_.swap(positions_);
  positions_.assign(options_.sample_count, kAbsent);
  ids_.clear();
  requested_.clear();
}

void QualityMeter::MeasureCoverage() {
  const quality::Coverage found = quality::Cover(ids_, positions_);
  const std::uint64_t missing = options_.partial ? 0 : found.missing;
  const std::uint64_t dropped = std::min(missing, options_.dropped);
  const std::uint64_t padded = std::min(found.repeats, options_.padded);
  const bool more = found.repeats > options_.padded;
  const std::uint64_t duplicated =
      more ? std::max<std::uint64_t>(1, found.duplicated - std::min(found.duplicated, padded)) : 0;
  so_far_.dropped = std::max(so_far_.dropped, dropped);
  so_far_.padded = std::max(so_far_.padded, padded);
  so_far_.missing = std::max(so_far_.missing, missing - dropped);
  so_far_.duplicated = std::max(so_far_.duplicated, duplicated);
  so_far_.ids_xor = found.ids_xor;
  so_far_.ids_sum = found.ids_sum;
  for (const std::uint32_t id : ids_) seen_[id] = true;
}

void QualityMeter::MeasureWindows(std::span<const std::uint32_t> groups,
                                  std::span<const std::uint32_t> sizes) {
  const std::uint64_t n = groups.size();
  const quality::GroupSizes sums = quality::SumSizes(sizes);
  std::vector<std::uint64_t> windows = options_.windows;
  if (windows.empty()) {
    windows = {options_.batch, 8 * options_.batch, 64 * options_.batch};
    if (n / 16 > options_.batch) windows.push_back(n / 16);
  }
  std::ranges::sort(windows);
  windows.erase(std::unique(windows.begin(), windows.end()), windows.end());
  std::map<std::uint64_t, double> vif;
  for (const std::uint64_t window : windows) {
    if (window < 2 || 2 * window > n) continue;
    const Null null = quality::ChiSquareNull(RowSizes(n, window), sums);
    if (null.mean == 0) continue;
    const double value = quality::WindowChiSquare(groups, sizes, window);
    tallies_.Count(fmt::format("vif_{}", window), "M3", true, value, null);
    vif[window] = value / null.mean;
  }
  so_far_.vif_of_epochs.push_back(std::move(vif));
  MeasureLabels(windows);

  std::vector<std::uint32_t> cells(n);
  for (std::size_t p = 0; p < n; ++p) {
    cells[p] = static_cast<std::uint32_t>(ids_[p] * kCells / options_.sample_count);
  }
  const std::vector<std::uint32_t> cell_sizes = CountGroups(cells, kCells);
  const std::uint64_t window = std::max<std::uint64_t>(1, (n + kCells - 1) / kCells);
  const double value = quality::WindowChiSquare(cells, cell_sizes, window);
  const Null null = quality::ChiSquareNull(RowSizes(n, window), quality::SumSizes(cell_sizes));
  tallies_.Count("position_by_place", "M2", true, value, null);
  if (null.mean > 0) {
    so_far_.more["cramer_v"] =
        std::sqrt(std::max(0.0, value - null.mean) / static_cast<double>(n * (kCells - 1)));
  }
}

// The mix of labels in windows, besides that of blocks.
void QualityMeter::MeasureLabels(std::span<const std::uint64_t> windows) {
  if (options_.labels == nullptr || options_.blocks == nullptr) return;
  const std::uint64_t n = ids_.size();
  std::vector<std::uint32_t> labels(n);
  for (std::size_t p = 0; p < n; ++p) labels[p] = (*options_.labels)[ids_[p]];
  const auto label_count = std::uint64_t{*std::ranges::max_element(labels)} + 1;
  const std::vector<std::uint32_t> sizes = CountGroups(labels, label_count);
  const quality::GroupSizes sums = quality::SumSizes(sizes);
  for (const std::uint64_t window : windows) {
    if (window < 2 || 2 * window > n) continue;
    const Null null = quality::ChiSquareNull(RowSizes(n, window), sums);
    if (null.mean == 0) continue;
    tallies_.Count(fmt::format("label_vif_{}", window), "M3", true,
                   quality::WindowChiSquare(labels, sizes, window), null);
  }
}

// The first and last samples differ: a first fill, a drain, the last step's gradient.
void QualityMeter::MeasureEnds(std::span<const std::uint32_t> groups,
                               std::span<const std::uint32_t> sizes) {
  const std::uint64_t n = groups.size();
  const quality::GroupSizes sums = quality::SumSizes(sizes);
  const auto end = static_cast<std::uint64_t>(kEndShare * static_cast<double>(n));
  const auto measure = [&](const std::string& name, std::uint64_t begin, std::uint64_t window,
                           std::uint64_t rows) {
    if (rows == 0 || window < 2) return;
    const double value =
        quality::SegmentChiSquare(groups, sizes, begin, begin + rows * window, window);
    tallies_.Count(
        name, "M3", true, value,
        quality::SegmentNull(static_cast<double>(rows), static_cast<double>(window), sums));
  };
  const std::uint64_t rows = end / options_.batch;
  measure("vif_first", 0, options_.batch, rows);
  measure("vif_last", n - rows * options_.batch, options_.batch, rows);
  if (end > 0) {
    measure("mix_first", 0, end, 1);
    measure("mix_last", n - end, end, 1);
  }
}

void QualityMeter::MeasureMates(std::span<const std::uint32_t> groups,
                                const quality::GroupSizes& sizes) {
  const std::uint64_t n = groups.size();
  const std::uint64_t lags = std::min(kLagsMax, n / 8);
  if (lags == 0 || sizes.groups < 2) return;
  const std::vector<std::uint64_t> same = quality::SameAtLags(groups, lags);
  const double p0 = sizes.same();
  double tau = 1;
  double tau_variance = 0;
  double pairs_expected = 0;
  for (std::uint64_t lag = 1; lag <= lags; ++lag) {
    const auto pairs = static_cast<double>(n - lag);
    const double sharing = 2 * std::max(0.0, static_cast<double>(n - 2 * lag));
    const Null null = quality::SamePairsNull(pairs, sharing, pairs * (pairs - 1) - sharing, sizes);
    const double excess = (static_cast<double>(same[lag - 1]) / pairs - p0) / (1 - p0);
    const double sd = null.sd / pairs / (1 - p0);
    tau += 2 * excess;
    tau_variance += 4 * sd * sd;
    pairs_expected += null.mean;
    if (lag == 1) {
      tallies_.Count("same_group_next", "M4", false, excess,
                     {.mean = 0, .sd = sd, .skew = null.skew});
    }
  }
  const double skew = pairs_expected > 0 ? (1 - 2 * p0) / std::sqrt(pairs_expected) : 0;
  tallies_.Count("autocorrelation_time", "M4", false, tau,
                 {.mean = 1, .sd = std::sqrt(tau_variance), .skew = std::max(0.0, skew)});
}

void QualityMeter::MeasureBatches(std::span<const std::uint32_t> groups, std::uint64_t group_count,
                                  const quality::GroupSizes& sizes) {
  const quality::Sources found = quality::MeasureSources(groups, group_count, options_.batch);
  if (found.windows < 2 || options_.batch < 4 || sizes.groups < 2) return;
  // w^2 / (w + 2 Q) with Q pairs of one group in a window of w, to the second order in Q.
  const auto w = static_cast<double>(options_.batch);
  const Null pairs = quality::SamePairsNull(w * (w - 1) / 2, w * (w - 1) * (w - 2),
                                            w * (w - 1) * (w - 2) * (w - 3) / 4, sizes);
  const double squares = w + 2 * pairs.mean;
  const double bend = 4 * pairs.sd * pairs.sd / (squares * squares);
  const double mean = w * w / squares * (1 + bend);
  // Not tested: it repeats vif, and its null is approximate.
  so_far_.more["effective_sources"] = found.effective;
  so_far_.more["effective_sources_ratio"] = found.effective / mean;
  so_far_.more["min_entropy"] = found.min_entropy;
}

void QualityMeter::MeasurePrefixes(std::span<const std::uint32_t> groups,
                                   std::uint64_t group_count) {
  std::vector<std::uint32_t> super(groups.size());
  const auto measure = [&](const std::string& name, std::uint64_t count) {
    const std::vector<std::uint32_t> sizes = CountGroups(super, count);
    const double value = quality::PrefixDiscrepancy(super, sizes);
    if (value > 0) tallies_.Worst(name, "M6", static_cast<double>(count), value, true);
  };
  if (group_count <= kGroupsMax) {
    std::ranges::copy(groups, super.begin());
    measure("prefix", group_count);
    return;
  }
  for (std::size_t p = 0; p < groups.size(); ++p) {
    super[p] = static_cast<std::uint32_t>(groups[p] * kSuperGroups / group_count);
  }
  measure("prefix_neighbours", kSuperGroups);
  for (std::size_t p = 0; p < groups.size(); ++p) {
    super[p] = static_cast<std::uint32_t>(Mix64(groups[p] + 1) % kSuperGroups);
  }
  measure("prefix_mixed", kSuperGroups);
}

void QualityMeter::MeasurePositions() {
  const auto n = static_cast<double>(ids_.size());
  if (ids_.size() < 16) return;
  tallies_.Count("position_correlation", "M1", false, quality::PositionCorrelation(ids_),
                 {.mean = 0, .sd = 1 / std::sqrt(n - 1)});
  const quality::Gaps gaps = quality::MeasureGaps(positions_, ids_.size());
  if (gaps.pairs >= 16) {
    tallies_.Worst("gap_ks", "M5", 1, gaps.ks, false);
    so_far_.more["gap_quantile"] = gaps.quantile;
  }
  tallies_.Count("neighbour_entropy", "M11", false,
                 quality::NeighbourEntropy(ids_, options_.sample_count),
                 quality::NeighbourEntropyNull(n - 1, static_cast<double>(options_.sample_count)));
  if (requested_.empty()) return;
  const quality::Redirection found = quality::MeasureRedirection(ids_, requested_, positions_);
  so_far_.more["redirect_rate"] = found.rate;
  so_far_.more["redirect_early_share"] = found.early_share;
  so_far_.more["redirect_late_p50"] = found.late_p50;
  so_far_.more["redirect_late_p99"] = found.late_p99;
  so_far_.more["redirect_late_max"] = found.late_max;
}

void QualityMeter::MeasureEpochs() {
  const quality::Recurrence found =
      quality::MeasureRecurrence(positions_before_, positions_, options_.batch);
  if (found.common < 16) return;
  tallies_.Count("epoch_correlation", "M9", false, found.correlation,
                 {.mean = 0, .sd = 1 / std::sqrt(found.common - 1)});
  if (found.expected <= 0) return;
  // The table of old against new batches: its chi-square is the pairs', up to a factor.
  const quality::GroupSizes before = quality::SumSizes(found.before);
  const quality::GroupSizes after = quality::SumSizes(found.after);
  const Null table = quality::ChiSquareNull(before, after);
  const double factor = found.common / (2 * before.groups * after.groups);
  const double skew = std::max(table.skew, 1 / std::sqrt(found.expected));
  tallies_.Count("pair_recurrence", "M9", true, found.pairs,
                 {.mean = found.expected, .sd = table.sd * factor, .skew = skew});
}

QualityReport QualityMeter::Report() const {
  QualityReport report = so_far_;
  report.group_count = static_cast<double>(group_count_);
  report.batch = options_.batch;
  report.stored_shuffled = options_.stored_shuffled;
  report.seen_share = static_cast<double>(std::ranges::count(seen_, true)) /
                      static_cast<double>(options_.sample_count);
  if (report.epochs == 0) {
    report.missing = options_.partial ? 0 : options_.sample_count;
    report.verdict = GradeName(QualityGrade::kBroken);
    report.why = "there are no samples";
    return report;
  }
  const double epochs = static_cast<double>(report.epochs);
  const double share =
      static_cast<double>(report.positions) / epochs / static_cast<double>(options_.sample_count);
  report.expected_seen_share = share >= 1 ? 1 : 1 - std::pow(1 - share, epochs);
  // The two beside the tallies are of lateness.
  const double tail = options_.alpha / (tallies_.CountTests(report.epochs) + 2);
  report.tests = tallies_.Tests(tail);
  by_place_.Report("place", tail, report);
  // The samples of a block may come together, at a place that each epoch draws anew. So the mean of
  // a neighbourhood on storage varies by chance as if it had as many samples as it has blocks.
  const double blocks = static_cast<double>(report.epochs * group_count_) /
                        static_cast<double>(quality::kSuperGroups);
  report.more["late_by_place_by_chance"] =
      quality::NormalQuantile(options_.alpha / (2.0 * quality::kSuperGroups)) /
      std::sqrt(12 * std::max(1.0, blocks));
  by_cost_.Report("cost", tail, report);
  Conclude(report);
  return report;
}

}  // namespace headrace
