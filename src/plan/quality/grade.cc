#include "plan/quality/grade.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "plan/quality/measures.h"
#include "plan/quality/report.h"

namespace headrace {
namespace {

// The upper bounds of three grades; a larger value is poor.
struct Limits {
  double excellent;
  double good;
  double fair;
};

constexpr Limits kBatchInflation = {.excellent = 1.05, .good = kGoodInflation, .fair = 2};
constexpr Limits kLabelInflation = {.excellent = 1.01, .good = kGoodLabelInflation, .fair = 1.5};
// In standard deviations of one sample. A batch of 256 random samples is off by 0.06.
constexpr Limits kDrift = {.excellent = 0.03, .good = 0.1, .fair = 0.2};
constexpr Limits kCorrelation = {.excellent = 0.02, .good = 0.1, .fair = 0.25};
constexpr Limits kRecurrence = {.excellent = 1.1, .good = 1.5, .fair = 3};
constexpr Limits kLateness = {.excellent = 0.005, .good = 0.02, .fair = 0.03};
constexpr Limits kEntropyBits = {.excellent = 0.05, .good = 0.5, .fair = 1};
// The data not seen, as a share of what independent draws would have seen.
constexpr Limits kUnseen = {.excellent = 0.01, .good = 0.05, .fair = 0.2};

QualityGrade GradeOf(double value, const Limits& limits) {
  if (value <= limits.excellent) return QualityGrade::kExcellent;
  if (value <= limits.good) return QualityGrade::kGood;
  return value <= limits.fair ? QualityGrade::kFair : QualityGrade::kPoor;
}

template <typename... Values>
std::string Text(const char* format, Values... values) {
  std::array<char, 320> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), format, values...));
  return text.data();
}

// How far the means of windows deviate beyond chance, in standard deviations of one sample.
double DriftOf(double inflation, double window) {
  return std::sqrt(std::max(0.0, inflation - 1) / window);
}

// Grades the measurements of one report.
class Grader {
 public:
  explicit Grader(const QualityReport& report) : report_(report) {}

  std::vector<QualityEffect> Grade() {
    GradeCoverage();
    GradeBatches();
    GradeWindows();
    GradeLabels();
    GradeCorrelation();
    GradeEpochs();
    GradeLateness();
    GradeNeighbours();
    GradeSeen();
    std::ranges::stable_sort(effects_, [](const QualityEffect& left, const QualityEffect& right) {
      return left.grade > right.grade;
    });
    return std::move(effects_);
  }

 private:
  // The test of this name if its value is not within chance; otherwise null.
  [[nodiscard]] const QualityTest* Outside(const std::string& name) const {
    const QualityTest* test = report_.Find(name);
    return test == nullptr || test->within ? nullptr : test;
  }

  [[nodiscard]] double More(const std::string& name) const {
    const auto found = report_.more.find(name);
    return found == report_.more.end() ? 0 : found->second;
  }

  void Add(std::string name, double value, const Limits& limits, bool by_chance, std::string what,
           std::string change) {
    const QualityGrade grade = by_chance ? QualityGrade::kExcellent : GradeOf(value, limits);
    effects_.push_back({.name = std::move(name),
                        .grade = grade,
                        .value = value,
                        .good = limits.good,
                        .what = std::move(what),
                        .change = grade <= QualityGrade::kGood ? "" : std::move(change)});
  }

  void GradeCoverage() {
    const auto wrong = report_.missing + report_.duplicated + report_.unknown;
    if (wrong == 0) return;
    effects_.push_back(
        {.name = "coverage",
         .grade = QualityGrade::kBroken,
         .value = static_cast<double>(wrong),
         .what = Text("%llu samples are missing, %llu come more than once, %llu are unknown",
                      static_cast<unsigned long long>(report_.missing),
                      static_cast<unsigned long long>(report_.duplicated),
                      static_cast<unsigned long long>(report_.unknown)),
         .change = "deliver every sample once an epoch"});
  }

  // Blocks that a buffer must mix so that a batch of `m` has the inflation `target`.
  [[nodiscard]] double BlocksFor(double m, double target) const {
    return std::ceil((m - 1) / (target - 1 + (m - 1) / report_.group_count));
  }

  [[nodiscard]] std::string MixMore(double blocks) const {
    if (std::min(blocks, report_.group_count) <= report_.equivalent_buffer) {
      return "shuffle over the whole storage: what is mixed now lies near each other there";
    }
    return Text("mix %.0f blocks at a time; now it is as if %.0f were mixed",
                std::min(blocks, report_.group_count), report_.equivalent_buffer);
  }

  void GradeBatches() {
    const auto at_batch = report_.vif.find(report_.batch);
    if (at_batch == report_.vif.end()) return;
    const auto& [window, inflation] = *at_batch;
    const auto m = static_cast<double>(window);
    Add("batch_inflation", inflation, kBatchInflation,
        report_.stored_shuffled || Outside(fmt::format("vif_{}", window)) == nullptr,
        report_.stored_shuffled
            ? Text("batches are as random ones, since the samples are stored shuffled; if samples "
                   "of a block were alike, batches would vary %.4g times as much",
                   inflation)
            : Text("if samples of a block are alike, batches vary %.4g times as much as random "
                   "ones: a batch of %.0f is as noisy as a random one of %.0f",
                   inflation, m, std::round(m / std::max(1.0, inflation))),
        MixMore(BlocksFor(m, kBatchInflation.good)));
  }

  void GradeWindows() {
    double worst = 0;
    double of_window = 0;
    const auto look = [&](const std::string& name, double inflation, double window) {
      const double drift = DriftOf(inflation, window);
      if (report_.stored_shuffled || Outside(name) == nullptr || drift <= worst) return;
      worst = drift;
      of_window = window;
    };
    const double n = static_cast<double>(report_.positions) / static_cast<double>(report_.epochs);
    for (const auto& [window, inflation] : report_.vif) {
      if (window > report_.batch) {
        look(fmt::format("vif_{}", window), inflation, static_cast<double>(window));
      }
    }
    for (const auto& [name, window] :
         {std::pair("position_by_place", std::ceil(n / quality::kCells)),
          std::pair("mix_first", std::floor(n * quality::kEndShare)),
          std::pair("mix_last", std::floor(n * quality::kEndShare))}) {
      if (const QualityTest* test = Outside(name)) look(name, test->value, window);
    }
    const double times = worst * worst / (kDrift.good * kDrift.good);
    Add("window_drift", worst, kDrift, worst == 0,
        worst == 0
            ? "windows beyond the batch are mixed as random ones"
            : Text("the means of %.0f samples in a row are off by %.3g standard deviations of one "
                   "sample, beyond chance",
                   of_window, worst),
        MixMore(std::ceil(times * report_.equivalent_buffer)));
  }

  void GradeLabels() {
    double worst = 1;
    std::uint64_t of_window = 0;
    for (const auto& [window, inflation] : report_.label_vif) {
      if (Outside(fmt::format("label_vif_{}", window)) == nullptr) continue;
      // The inflation of a batch that deviates as far as this window does.
      const double as_batch =
          1 + (inflation - 1) * static_cast<double>(report_.batch) / static_cast<double>(window);
      if (as_batch <= worst) continue;
      worst = as_batch;
      of_window = window;
    }
    if (report_.label_vif.empty()) return;
    Add("label_mix", worst, kLabelInflation, worst == 1,
        worst == 1
            ? "labels are mixed as by chance"
            : Text("the mix of labels over %llu samples in a row varies as if batches varied "
                   "%.4g times as much as random ones",
                   static_cast<unsigned long long>(of_window), worst),
        Text("mix %.3g times as much data at a time, or store the samples shuffled",
             (worst - 1) / (kLabelInflation.good - 1)));
  }

  void GradeCorrelation() {
    const QualityTest* test = Outside("position_correlation");
    const double value = test == nullptr ? 0 : std::abs(test->value);
    Add("storage_order", value, kCorrelation, test == nullptr,
        test == nullptr ? "the epoch does not follow the order of storage"
                        : Text("the epoch follows the order of storage, with a correlation of %.3g",
                               test->value),
        "shuffle the blocks, too: the start of an epoch must not be the start of the storage");
  }

  void GradeEpochs() {
    const std::string change =
        "draw every epoch anew: the seed of a shuffle must depend on the epoch";
    if (const QualityTest* test = report_.Find("pair_recurrence")) {
      Add("batches_alike", test->value, kRecurrence, test->within,
          Text("pairs of samples share a batch in successive epochs %.4g times as often as by "
               "chance",
               test->value),
          change);
    }
    if (const QualityTest* test = report_.Find("epoch_correlation")) {
      Add("epochs_alike", std::abs(test->value), kCorrelation, test->within,
          Text("samples keep their place from epoch to epoch, with a correlation of %.3g",
               test->value),
          change);
    }
  }

  void GradeLateness() {
    for (const auto& [name, who] : {std::pair("place", "samples of one part of the storage"),
                                    std::pair("cost", "samples of one size")}) {
      const std::string effect = std::string("lateness_by_") + name;
      if (report_.Find(effect) == nullptr) continue;
      const double value = More(std::string("late_by_") + name);
      const bool by_chance = Outside(effect) == nullptr ||
                             value <= More(std::string("late_by_") + name + "_by_chance");
      Add(effect, value, kLateness, by_chance,
          by_chance
              ? Text("no %s come early or late in every epoch", who)
              : Text("%s come early or late by %.2g %% of an epoch on average", who, 100 * value),
          "deliver samples by the order, not by when they were read (at most 2 % of an epoch)");
    }
  }

  void GradeNeighbours() {
    const QualityTest* test = Outside("neighbour_entropy");
    const double bits = test == nullptr ? 0 : std::max(0.0, test->expected - test->value);
    Add("regular_steps", bits, kEntropyBits, test == nullptr || bits == 0,
        Text("the step from a sample to the next is %.3g bits less random than by chance", bits),
        "draw a random permutation, not an arithmetic sequence");
  }

  void GradeSeen() {
    const double share = report_.expected_seen_share;
    if (share <= 0) return;
    const double unseen = 1 - std::min(1.0, report_.seen_share / share);
    const QualityGrade grade = GradeOf(unseen, kUnseen);
    effects_.push_back(
        {.name = "data_seen",
         .grade = grade,
         .value = report_.seen_share,
         .good = share * (1 - kUnseen.good),
         .what = Text(
             "%.3g %% of the data were seen over all epochs together; random draws see %.3g %%",
             100 * report_.seen_share, 100 * share),
         .change = grade <= QualityGrade::kGood
                       ? ""
                       : "divide the samples over ranks anew in every epoch"});
  }

  const QualityReport& report_;
  std::vector<QualityEffect> effects_;
};

}  // namespace

const char* GradeName(QualityGrade grade) {
  switch (grade) {
    case QualityGrade::kExcellent:
      return "excellent";
    case QualityGrade::kGood:
      return "good";
    case QualityGrade::kFair:
      return "fair";
    case QualityGrade::kPoor:
      return "poor";
    case QualityGrade::kBroken:
      break;
  }
  return "broken";
}

std::vector<QualityEffect> GradeEffects(const QualityReport& report) {
  return Grader(report).Grade();
}

}  // namespace headrace
