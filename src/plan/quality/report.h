#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/quality/grade.h"

namespace headrace {

// One measure against its null. `value` and the bounds are in the measure's own unit.
struct QualityTest {
  std::string id;    // "M3"
  std::string name;  // "vif_256"
  double value = 0;
  double expected = 0;
  double low = 0;
  double high = 0;
  double z = 0;  // of a normal distribution
  bool within = true;
};

struct QualityReport {
  std::uint64_t epochs = 0;
  std::uint64_t positions = 0;   // of all epochs
  std::uint64_t batch = 0;       // of QualityOptions
  bool stored_shuffled = false;  // of QualityOptions
  // M0: worst epoch, beyond the declared number.
  std::uint64_t missing = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t dropped = 0;  // declared and found
  std::uint64_t padded = 0;
  std::uint64_t unknown = 0;  // ids that the dataset does not have; left out of everything else
  std::uint64_t ids_xor = 0;  // of the last epoch
  std::uint64_t ids_sum = 0;
  double seen_share = 0;           // of the dataset, over all epochs
  double expected_seen_share = 0;  // if the samples of each epoch were drawn independently

  std::vector<QualityTest> tests;
  std::map<std::uint64_t, double> vif;  // M3 by window
  std::vector<std::map<std::uint64_t, double>> vif_of_epochs;
  std::map<std::uint64_t, double> label_vif;  // the same of labels, if there are blocks, too
  std::map<std::string, double> more;         // M5, M7, M9, M10: reported, not tested
  double equivalent_buffer = 0;  // groups that a buffer would have to mix for the batch's inflation
  double group_count = 0;
  std::vector<QualityEffect> effects;  // worst first
  std::string verdict;                 // the worst grade, by name
  std::string why;                     // the effect that decided it
  std::string change;                  // what to change and by how much; empty if nothing
  std::vector<std::string> failed;     // names of tests not within their bounds

  [[nodiscard]] const QualityTest* Find(const std::string& name) const;
};

// Completes a report with what follows from its tests: their order, which failed, the inflations by
// window, the grades and the verdict. Requires everything else in `report`.
void Conclude(QualityReport& report);

}  // namespace headrace
