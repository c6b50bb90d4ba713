// What the meter found, held against its bounds, in one word.

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <utility>

#include "plan/quality/quality.h"

namespace headrace {
namespace {

// Grades of an order that is no uniform permutation.
constexpr double kNearVif = 1.05;
constexpr double kNearPrefix = 3;
constexpr double kMixedVif = 2;
constexpr double kMixedPrefix = 10;
// Departures that variance inflation does not see, too large to be called near.
constexpr double kEvenVif = 0.9;
constexpr double kCorrelation = 0.1;
constexpr double kRecurrence = 1.5;
constexpr double kEntropyBits = 0.5;
constexpr double kLateEpochs = 0.02;

double ValueOf(const QualityReport& report, const std::string& name, double none) {
  const QualityTest* test = report.Find(name);
  return test == nullptr ? none : test->value;
}

double LargestPrefix(const QualityReport& report) {
  return std::max({ValueOf(report, "prefix", 0), ValueOf(report, "prefix_neighbours", 0),
                   ValueOf(report, "prefix_mixed", 0)});
}

bool Failed(const QualityReport& report, const std::string& name) {
  return std::ranges::find(report.failed, name) != report.failed.end();
}

// Whether a pattern stands behind it that mixing does not measure: too even, the same again and
// again, some always late.
bool IsPatterned(const QualityReport& report, double vif) {
  const QualityTest* entropy = report.Find("neighbour_entropy");
  const auto beyond = [&report](const std::string& name, double most) {
    return Failed(report, name) && std::abs(ValueOf(report, name, 0)) > most;
  };
  const auto late = report.more.find("late_by_place");
  const auto late_cost = report.more.find("late_by_cost");
  return (vif < kEvenVif && !report.failed.empty()) ||
         beyond("position_correlation", kCorrelation) ||
         beyond("epoch_correlation", kCorrelation) || beyond("pair_recurrence", kRecurrence) ||
         (entropy != nullptr && !entropy->within &&
          entropy->expected - entropy->value > kEntropyBits) ||
         (Failed(report, "lateness_by_place") && late != report.more.end() &&
          late->second > kLateEpochs) ||
         (Failed(report, "lateness_by_cost") && late_cost != report.more.end() &&
          late_cost->second > kLateEpochs);
}

struct Grade {
  std::string verdict;
  std::string why;
};

std::string Against(const char* what, double value, double most) {
  std::array<char, 96> text{};
  static_cast<void>(
      std::snprintf(text.data(), text.size(), "%s %.4g is above %.4g", what, value, most));
  return text.data();
}

Grade Judge(const QualityReport& report, double vif) {
  if (report.missing + report.duplicated + report.unknown > 0) {
    return {"broken", "samples are missing, duplicated or unknown"};
  }
  if (report.failed.empty()) return {"uniform", "every measure is within its bounds"};
  const char* const of_vif = "variance inflation at the batch";
  const char* const of_prefix = "prefix discrepancy";
  const double prefix = LargestPrefix(report);
  if (vif > kMixedVif) return {"clustered", Against(of_vif, vif, kMixedVif)};
  if (prefix > kMixedPrefix) return {"clustered", Against(of_prefix, prefix, kMixedPrefix)};
  if (IsPatterned(report, vif)) {
    return {"patterned", "too even, the same again, or some always late: see the measures outside"};
  }
  if (vif > kNearVif) return {"mixed", Against(of_vif, vif, kNearVif)};
  if (prefix > kNearPrefix) return {"mixed", Against(of_prefix, prefix, kNearPrefix)};
  return {"near-uniform", "variance inflation and prefix discrepancy are small"};
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
  report.seen_share = static_cast<double>(std::ranges::count(seen_, true)) /
                      static_cast<double>(options_.sample_count);
  if (report.epochs == 0) {
    report.missing = options_.partial ? 0 : options_.sample_count;
    report.verdict = "broken";
    report.why = "there are no samples";
    return report;
  }
  const double tail = options_.alpha / CountTests();
  ReportTallies(report, tail);
  ReportExtremes(report, tail);
  ReportLateness("place", by_place_, tail, report);
  ReportLateness("cost", by_cost_, tail, report);
  std::ranges::sort(report.tests, {}, [](const QualityTest& test) {
    return std::pair(std::stoi(test.id.substr(1)), test.name);
  });
  for (const QualityTest& test : report.tests) {
    if (!test.within) report.failed.push_back(test.name);
    if (test.name.starts_with("vif_") && std::isdigit(test.name.back()) != 0) {
      report.vif[std::stoull(test.name.substr(4))] = test.value;
    }
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
  Grade grade = Judge(report, vif);
  report.verdict = std::move(grade.verdict);
  report.why = std::move(grade.why);
  return report;
}

}  // namespace headrace
