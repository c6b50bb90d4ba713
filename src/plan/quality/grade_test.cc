#include "plan/quality/grade.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/quality/quality.h"

namespace headrace {
namespace {

// A report of two epochs of 100,000 samples whose measures are all within chance.
QualityReport ByChance() {
  QualityReport report;
  report.epochs = 2;
  report.positions = 200'000;
  report.batch = 100;
  report.group_count = 1000;
  report.equivalent_buffer = 1000;
  report.seen_share = report.expected_seen_share = 1;
  report.vif = {{100, 1.0}, {10'000, 1.0}};
  report.label_vif = report.vif;
  for (const char* name :
       {"vif_100", "vif_10000", "label_vif_100", "label_vif_10000", "position_by_place",
        "mix_first", "mix_last", "position_correlation", "pair_recurrence", "epoch_correlation",
        "lateness_by_place", "lateness_by_cost", "neighbour_entropy"}) {
    report.tests.push_back({.name = name, .value = 1, .expected = 1, .within = true});
  }
  return report;
}

// A measure outside chance.
void Set(QualityReport& report, const std::string& name, double value) {
  const auto found = std::ranges::find(report.tests, name, &QualityTest::name);
  found->value = value;
  found->within = false;
}

void SetVif(QualityReport& report, std::uint64_t window, double value) {
  report.vif[window] = value;
  Set(report, "vif_" + std::to_string(window), value);
}

QualityEffect Effect(const QualityReport& report, const std::string& name) {
  const std::vector<QualityEffect> effects = GradeEffects(report);
  const auto found = std::ranges::find(effects, name, &QualityEffect::name);
  EXPECT_NE(found, effects.end()) << name;
  return found == effects.end() ? QualityEffect() : *found;
}

struct Case {
  const char* name;
  std::function<void(QualityReport&, double)> set;  // a size of the effect
  double excellent;
  double good;
  double fair;
};

const std::vector<Case>& Cases() {
  // The drift of a window of w samples with inflation V is sqrt((V - 1) / w).
  const auto drift = [](double size, double window) { return 1 + size * size * window; };
  static const std::vector<Case> cases = {
      {"batch_inflation", [](QualityReport& r, double x) { SetVif(r, 100, x); }, 1.05, 1.15, 2},
      {"window_drift", [drift](QualityReport& r, double x) { SetVif(r, 10'000, drift(x, 10'000)); },
       0.03, 0.1, 0.2},
      {"window_drift",
       [drift](QualityReport& r, double x) {
         Set(r, "position_by_place", drift(x, std::ceil(100'000 / 64.0)));
       },
       0.03, 0.1, 0.2},
      {"window_drift", [drift](QualityReport& r, double x) { Set(r, "mix_first", drift(x, 5000)); },
       0.03, 0.1, 0.2},
      {"label_mix",
       [](QualityReport& r, double x) {
         r.label_vif[100] = x;
         Set(r, "label_vif_100", x);
       },
       1.01, 1.05, 1.5},
      {"label_mix",
       [](QualityReport& r, double x) {
         r.label_vif[10'000] = 1 + (x - 1) * 100;
         Set(r, "label_vif_10000", r.label_vif[10'000]);
       },
       1.01, 1.05, 1.5},
      {"storage_order", [](QualityReport& r, double x) { Set(r, "position_correlation", -x); },
       0.02, 0.1, 0.25},
      {"batches_alike", [](QualityReport& r, double x) { Set(r, "pair_recurrence", x); }, 1.1, 1.5,
       3},
      {"epochs_alike", [](QualityReport& r, double x) { Set(r, "epoch_correlation", x); }, 0.02,
       0.1, 0.25},
      {"lateness_by_cost",
       [](QualityReport& r, double x) {
         r.more["late_by_cost"] = x;
         Set(r, "lateness_by_cost", 9);
       },
       0.005, 0.02, 0.03},
      {"regular_steps", [](QualityReport& r, double x) { Set(r, "neighbour_entropy", 1 - x); },
       0.05, 0.5, 1},
      {"data_seen",
       [](QualityReport& r, double x) {
         r.expected_seen_share = 0.75;
         r.seen_share = 0.75 * (1 - x);
       },
       0.01, 0.05, 0.2},
  };
  return cases;
}

TEST(GradeTest, AnEffectIsGradedByItsSize) {
  for (const Case& each : Cases()) {
    const auto graded = [&](double size) {
      QualityReport report = ByChance();
      each.set(report, size);
      return GradeEffects(report).front();
    };
    const double a_little = 1e-6;
    const std::vector<std::pair<double, QualityGrade>> sizes = {
        {each.excellent + a_little, QualityGrade::kGood},
        {each.good - a_little, QualityGrade::kGood},
        {each.good + a_little, QualityGrade::kFair},
        {each.fair - a_little, QualityGrade::kFair},
        {each.fair + a_little, QualityGrade::kPoor}};
    for (const auto& [size, grade] : sizes) {
      const QualityEffect effect = graded(size);
      EXPECT_EQ(effect.name, each.name) << size;  // The worst comes first.
      EXPECT_STREQ(GradeName(effect.grade), GradeName(grade)) << each.name << " " << size;
      EXPECT_EQ(effect.change.empty(), grade == QualityGrade::kGood) << each.name << " " << size;
    }
    QualityReport report = ByChance();
    each.set(report, each.excellent - a_little);
    EXPECT_EQ(Effect(report, each.name).grade, QualityGrade::kExcellent) << each.name;
  }
}

TEST(GradeTest, WhatChanceGivesIsExcellentWhateverItsSize) {
  for (const Case& each : Cases()) {
    if (std::string(each.name) == "data_seen") continue;  // It has no test.
    QualityReport report = ByChance();
    each.set(report, each.fair + 1);
    for (QualityTest& test : report.tests) test.within = true;
    for (const QualityEffect& effect : GradeEffects(report)) {
      EXPECT_EQ(effect.grade, QualityGrade::kExcellent) << each.name << " " << effect.name;
    }
  }
}

TEST(GradeTest, EffectsHaveNamesOfTheirOwnAndAnyLostSampleIsBroken) {
  QualityReport report = ByChance();
  report.missing = 3;
  report.unknown = 1;
  const std::vector<QualityEffect> effects = GradeEffects(report);
  EXPECT_EQ(effects.front().name, "coverage");
  EXPECT_EQ(effects.front().grade, QualityGrade::kBroken);
  EXPECT_EQ(effects.front().value, 4);
  std::vector<std::string> names;
  for (const QualityEffect& effect : effects) names.push_back(effect.name);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

TEST(GradeTest, PlacesAreLateOnlyBeyondWhatBlocksAtRandomPlacesGive) {
  QualityReport report = ByChance();
  Set(report, "lateness_by_place", 9);
  report.more = {{"late_by_place", 0.04}, {"late_by_place_by_chance", 0.05}};
  EXPECT_EQ(GradeEffects(report).front().grade, QualityGrade::kExcellent);
  report.more["late_by_place_by_chance"] = 0.01;
  EXPECT_EQ(GradeEffects(report).front().name, "lateness_by_place");
  EXPECT_EQ(GradeEffects(report).front().grade, QualityGrade::kPoor);
}

TEST(GradeTest, TheAdviceNamesMoreBlocksThanAreMixed) {
  QualityReport report = ByChance();
  SetVif(report, 100, 3);
  report.equivalent_buffer = 47;
  EXPECT_EQ(Effect(report, "batch_inflation").change,
            "mix 398 blocks at a time; now it is as if 47 were mixed");
  // Batches are mixed over all blocks, longer windows are not.
  report = ByChance();
  SetVif(report, 10'000, 1000);
  EXPECT_THAT(Effect(report, "window_drift").change, testing::HasSubstr("over the whole storage"));
}

TEST(GradeTest, BlocksOfSamplesThatWereStoredShuffledAreMixedUnlessTheyComeTogetherAgain) {
  QualityReport report = ByChance();
  SetVif(report, 100, 30);
  SetVif(report, 10'000, 2000);
  Set(report, "mix_first", 500);
  Set(report, "position_by_place", 100);
  EXPECT_EQ(Effect(report, "batch_inflation").grade, QualityGrade::kPoor);
  EXPECT_EQ(Effect(report, "window_drift").grade, QualityGrade::kPoor);
  report.stored_shuffled = true;
  EXPECT_EQ(GradeEffects(report).front().grade, QualityGrade::kExcellent);
  EXPECT_THAT(Effect(report, "batch_inflation").what, testing::HasSubstr("30 times as much"));
  for (const char* name : {"pair_recurrence", "epoch_correlation", "position_correlation"}) {
    QualityReport again = report;
    Set(again, name, 5);
    EXPECT_EQ(GradeEffects(again).front().grade, QualityGrade::kPoor) << name;
  }
}

TEST(GradeTest, ABatchThatWasNotMeasuredIsNotGraded) {
  QualityReport report = ByChance();
  report.batch = 99;
  for (const QualityEffect& effect : GradeEffects(report)) {
    EXPECT_NE(effect.name, "batch_inflation");
  }
}

}  // namespace
}  // namespace headrace
