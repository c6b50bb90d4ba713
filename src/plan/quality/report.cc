// The meter's results, with bounds and grades.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>
#include <utility>

#include "plan/quality/quality.h"

namespace headrace {
namespace {

constexpr std::string_view kVif = "vif_";
constexpr std::string_view kLabelVif = "label_vif_";

// Adds the inflation of a test whose name is `prefix` and a window; ignores other tests.
void AddInflation(const QualityTest& test, std::string_view prefix,
                  std::map<std::uint64_t, double>& vif) {
  if (!test.name.starts_with(prefix)) return;
  const std::string_view window = std::string_view(test.name).substr(prefix.size());
  if (!std::ranges::all_of(window, [](char digit) { return digit >= '0' && digit <= '9'; })) return;
  vif[std::stoull(std::string(window))] = test.value;
}

}  // namespace

const QualityTest* QualityReport::Find(const std::string& name) const {
  const auto found = std::ranges::find(tests, name, &QualityTest::name);
  return found == tests.end() ? nullptr : &*found;
}

double QualityMeter::CountTests() const {
  const double epochs = static_cast<double>(std::max<std::uint64_t>(1, so_far_.epochs));
  return static_cast<double>(tallies_.size()) + epochs * static_cast<double>(extremes_.size()) + 2;
}

void QualityMeter::ReportTallies(QualityReport& report, double tail) const {
  const double z = quality::NormalQuantile(tail / 2);
  for (const auto& [name, tally] : tallies_) {
    const double sd = std::sqrt(tally.variance);
    const quality::Null null{
        .mean = tally.mean, .sd = sd, .skew = sd > 0 ? tally.third / (sd * sd * sd) : 0};
    const double scale = tally.ratio ? tally.mean : tally.epochs;
    QualityTest test{.id = tally.id,
                     .name = name,
                     .value = tally.sum / scale,
                     .expected = tally.mean / scale,
                     .low = quality::ValueAt(-z, null) / scale,
                     .high = quality::ValueAt(z, null) / scale,
                     .z = quality::ZScore(tally.sum, null)};
    test.within = std::abs(test.z) <= z;
    report.tests.push_back(std::move(test));
  }
}

void QualityMeter::ReportExtremes(QualityReport& report, double tail) const {
  for (const auto& [name, extreme] : extremes_) {
    const double low = extreme.two_sided ? quality::BridgeLower(tail) : 0;
    const double high = quality::BridgeUpper(tail, extreme.groups);
    const bool is_low = extreme.least < low;
    const double value = is_low ? extreme.least : extreme.most;
    const double chance = 2 * extreme.groups * std::exp(-2 * value * value);
    const double tail_chance = std::clamp(chance / 2, std::numeric_limits<double>::min(), 0.5);
    report.tests.push_back({.id = extreme.id,
                            .name = name,
                            .value = value,
                            .expected = quality::BridgeUpper(std::numbers::ln2, extreme.groups),
                            .low = low,
                            .high = high,
                            .z = quality::NormalQuantile(tail_chance),
                            .within = !is_low && value <= high});
  }
}

void QualityMeter::ReportLateness(const std::string& name, const Lateness& lateness, double tail,
                                  QualityReport& report) const {
  double most = 0;
  double groups = 0;
  double late = 0;
  for (std::size_t g = 0; g < lateness.sum.size(); ++g) {
    if (lateness.variance[g] <= 0) continue;
    groups += 1;
    const double z = std::abs(lateness.sum[g]) / std::sqrt(lateness.variance[g]);
    if (z > most) late = std::abs(lateness.sum[g] / lateness.count[g]);
    most = std::max(most, z);
  }
  if (groups < 2) return;
  const double high = quality::NormalQuantile(tail / (2 * groups));
  report.more["late_by_" + name] = late;
  report.tests.push_back({.id = "M8",
                          .name = "lateness_by_" + name,
                          .value = most,
                          .expected = quality::NormalQuantile(std::numbers::ln2 / (2 * groups)),
                          .low = 0,
                          .high = high,
                          .z = most,
                          .within = most <= high});
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
  const double tail = options_.alpha / CountTests();
  ReportTallies(report, tail);
  ReportExtremes(report, tail);
  ReportLateness("place", by_place_, tail, report);
  // The samples of a block may come together, at a place that each epoch draws anew. So the mean of
  // a neighbourhood on storage varies by chance as if it had as many samples as it has blocks.
  const double blocks = static_cast<double>(report.epochs * group_count_) /
                        static_cast<double>(quality::kSuperGroups);
  report.more["late_by_place_by_chance"] =
      quality::NormalQuantile(options_.alpha / (2.0 * quality::kSuperGroups)) /
      std::sqrt(12 * std::max(1.0, blocks));
  ReportLateness("cost", by_cost_, tail, report);
  std::ranges::sort(report.tests, {}, [](const QualityTest& test) {
    return std::pair(std::stoi(test.id.substr(1)), test.name);
  });
  for (const QualityTest& test : report.tests) {
    if (!test.within) report.failed.push_back(test.name);
    AddInflation(test, kVif, report.vif);
    AddInflation(test, kLabelVif, report.label_vif);
  }
  const auto at_batch = report.vif.find(options_.batch);
  const auto& used = at_batch != report.vif.end() ? at_batch : report.vif.begin();
  const double vif = report.vif.empty() ? 1 : used->second;
  report.equivalent_buffer = report.group_count;
  if (!report.vif.empty()) {
    const auto w = static_cast<double>(used->first);
    const double excess = vif - 1 + (w - 1) / report.group_count;
    if (excess > 0) report.equivalent_buffer = std::min(report.group_count, (w - 1) / excess);
  }
  const double epochs = static_cast<double>(report.epochs);
  const double share =
      static_cast<double>(report.positions) / epochs / static_cast<double>(options_.sample_count);
  report.expected_seen_share = share >= 1 ? 1 : 1 - std::pow(1 - share, epochs);
  report.effects = GradeEffects(report);
  report.verdict = GradeName(QualityGrade::kExcellent);
  if (!report.effects.empty()) {
    const QualityEffect& worst = report.effects.front();
    report.verdict = GradeName(worst.grade);
    report.why =
        worst.grade == QualityGrade::kExcellent ? "as random draws, for training" : worst.what;
    report.change = worst.change;
  }
  return report;
}

}  // namespace headrace
