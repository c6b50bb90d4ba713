#include "plan/quality/report.h"

#include <algorithm>
#include <string_view>
#include <utility>

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

void Conclude(QualityReport& report) {
  std::ranges::sort(report.tests, {}, [](const QualityTest& test) {
    return std::pair(std::stoi(test.id.substr(1)), test.name);
  });
  for (const QualityTest& test : report.tests) {
    if (!test.within) report.failed.push_back(test.name);
    AddInflation(test, kVif, report.vif);
    AddInflation(test, kLabelVif, report.label_vif);
  }
  const auto at_batch = report.vif.find(report.batch);
  const auto& used = at_batch != report.vif.end() ? at_batch : report.vif.begin();
  const double vif = report.vif.empty() ? 1 : used->second;
  report.equivalent_buffer = report.group_count;
  if (!report.vif.empty()) {
    const auto w = static_cast<double>(used->first);
    const double excess = vif - 1 + (w - 1) / report.group_count;
    if (excess > 0) report.equivalent_buffer = std::min(report.group_count, (w - 1) / excess);
  }
  report.effects = GradeEffects(report);
  report.verdict = GradeName(QualityGrade::kExcellent);
  if (!report.effects.empty()) {
    const QualityEffect& worst = report.effects.front();
    report.verdict = GradeName(worst.grade);
    report.why =
        worst.grade == QualityGrade::kExcellent ? "as random draws, for training" : worst.what;
    report.change = worst.change;
  }
}

}  // namespace headrace
