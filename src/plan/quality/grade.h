#pragma once

// Grades of an order, by the size of its effects on training. Whether statistics can tell the order
// from a uniform permutation decides no grade: over enough samples every finite pool differs.

#include <string>
#include <vector>

namespace headrace {

struct QualityReport;

enum class QualityGrade : unsigned char { kExcellent, kGood, kFair, kPoor, kBroken };

// "excellent", "good", "fair", "poor", "broken".
const char* GradeName(QualityGrade grade);

// A batch's variance inflation that is graded good: of samples of one block, as if they were alike,
// and of the labels as they are. A batch of m samples with inflation V is as noisy as a uniform one
// of m / V. Beyond kGoodLabelInflation the loader warns.
inline constexpr double kGoodInflation = 1.15;
inline constexpr double kGoodLabelInflation = 1.05;

// One effect of an order on training.
struct QualityEffect {
  std::string name;  // "batch_inflation"; docs/quality.md lists them
  QualityGrade grade = QualityGrade::kExcellent;
  double value = 0;    // its size, in the unit that docs/quality.md gives
  double good = 0;     // the largest value graded good; of `data_seen` the least
  std::string what;    // a sentence with the value
  std::string change;  // what to change and by how much; empty if the effect is good
};

// The effects of what `report` measured, worst first. Everything but its effects, verdict, why and
// change must be filled in. An effect that is within the bounds of its test is what a uniform
// permutation gives: its grade is excellent. So is the mix of blocks where the samples were stored
// shuffled: whatever a sample's label or value, it does not go with its block. That blocks come
// together again in later epochs is graded all the same. Pure: any thread.
std::vector<QualityEffect> GradeEffects(const QualityReport& report);

}  // namespace headrace
