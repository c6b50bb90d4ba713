#pragma once

// Grades of an order, by the size of its effects on training. Statistical significance decides no
// grade: with enough samples every finite pool differs from a uniform permutation.

#include <string>
#include <vector>

namespace headrace {

struct QualityReport;

enum class QualityGrade : unsigned char { kExcellent, kGood, kFair, kPoor, kBroken };

// "excellent", "good", "fair", "poor", "broken".
const char* GradeName(QualityGrade grade);

// The variance inflation of a batch that is graded good: for the samples of one block, as if they
// were alike, and for the actual labels. A batch of m samples with inflation V is as noisy as a
// uniform one of m / V. Beyond kGoodLabelInflation the loader warns.
inline constexpr double kGoodInflation = 1.15;
inline constexpr double kGoodLabelInflation = 1.05;

// One effect of an order on training.
struct QualityEffect {
  std::string name;  // "batch_inflation"; docs/quality.md lists them
  QualityGrade grade = QualityGrade::kExcellent;
  double value = 0;    // its size, in the unit that docs/quality.md gives
  double good = 0;     // the largest value graded good; for `data_seen` the smallest
  std::string what;    // a sentence with the value
  std::string change;  // what to change and by how much; empty if the effect is good
};

// The effects measured in `report`, worst first. Requires everything in `report` but its effects,
// verdict, why and change. An effect within the bounds of its test is what a uniform permutation
// gives: its grade is excellent. The mix of blocks is excellent, too, if the samples were stored
// shuffled: a sample's label or value then does not depend on its block. Blocks that come together
// again in later epochs are graded all the same.
//
// Thread safety: a pure function.
std::vector<QualityEffect> GradeEffects(const QualityReport& report);

}  // namespace headrace
