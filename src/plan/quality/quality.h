#pragma once

// quality/ measures how well an order shuffles: M0 to M11 over any sequence of samples, ours or
// another loader's, each compared with a uniform permutation. docs/quality.md has the formulas, and
// the disorder that each measure finds.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"
#include "plan/quality/grade.h"
#include "plan/quality/measures.h"
#include "plan/quality/nulls.h"

namespace headrace {

struct QualityOptions {
  std::uint64_t sample_count = 0;  // of the dataset; below 2^32 - 1
  // A sample's group is its block; its label if there are no blocks.
  std::shared_ptr<const BlockMap> blocks;
  // With blocks the mix of labels is measured, too. May be null.
  SampleTable labels;
  // The samples were stored in a random order: a block is a random draw of them. See grade.h.
  bool stored_shuffled = false;
  std::uint64_t batch = 256;           // samples of one step
  std::vector<std::uint64_t> windows;  // of the inflation; empty: batch, 8x, 64x, n/16
  std::uint64_t dropped = 0;           // samples that an epoch leaves out, as declared
  std::uint64_t padded = 0;            // positions that an epoch adds, as declared
  bool partial = false;                // one rank's sequence: others have what it misses
  SampleTable costs;                   // of each sample: are large or slow ones late? May be null
  double alpha = 1e-3;                 // chance that a uniform permutation fails any of the tests
};

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

// Takes epochs of samples, one after the other, and measures each when it ends.
//
// Memory: 20 bytes a sample of the dataset, for any number of epochs.
// Cost: 10 M samples in 156,250 blocks take about 1.5 s.
// Thread safety: as for a vector.
class QualityMeter {
 public:
  // Errors: InvalidArgument  an invalid size, by name
  static Result<std::unique_ptr<QualityMeter>> Make(QualityOptions options);

  // Adds delivered samples. An epoch holds at most 2^32 - 2: those beyond count as unknown.
  void Add(std::span<const std::uint64_t> ids);

  // Adds requested samples, position by position, for an order that redirects: M10.
  void AddRequested(std::span<const std::uint64_t> ids);

  // Measures the samples added since the last epoch's end. Does nothing for an empty epoch.
  void EndEpoch();

  [[nodiscard]] QualityReport Report() const;

 private:
  // A statistic and its null, summed over epochs.
  struct Tally {
    std::string id;
    bool ratio = false;  // reported as value / expected, otherwise as the mean of the epochs
    double epochs = 0;
    double sum = 0;
    double mean = 0;
    double variance = 0;
    double third = 0;
  };
  // A largest deviation: that of the worst epoch.
  struct Extreme {
    std::string id;
    double groups = 1;
    double least = 0;
    double most = 0;
    bool two_sided = false;
  };
  // M8: positions by group, over epochs.
  struct Lateness {
    std::vector<std::uint32_t> group_of;  // of each sample
    std::vector<double> sum;              // of positions minus their mean, in epochs
    std::vector<double> variance;
    std::vector<double> count;
  };

  explicit QualityMeter(QualityOptions options);

  void Count(const std::string& name, std::string id, bool ratio, double value,
             const quality::Null& null);
  void Worst(const std::string& name, std::string id, double groups, double value, bool two_sided);
  void MeasureCoverage();
  void MeasureWindows(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes);
  void MeasureLabels(std::span<const std::uint64_t> windows);
  void MeasureEnds(std::span<const std::uint32_t> groups, std::span<const std::uint32_t> sizes);
  void MeasureMates(std::span<const std::uint32_t> groups, const quality::GroupSizes& sizes);
  void MeasureBatches(std::span<const std::uint32_t> groups, std::uint64_t group_count,
                      const quality::GroupSizes& sizes);
  void MeasurePrefixes(std::span<const std::uint32_t> groups, std::uint64_t group_count);
  void MeasurePositions();
  void MeasureEpochs();
  void AddLateness(Lateness& lateness);

  void ReportTallies(QualityReport& report, double tail) const;
  void ReportExtremes(QualityReport& report, double tail) const;
  void ReportLateness(const std::string& name, const Lateness& lateness, double tail,
                      QualityReport& report) const;
  [[nodiscard]] double CountTests() const;

  const QualityOptions options_;
  std::uint64_t group_count_ = 0;
  std::vector<std::uint32_t> group_of_;  // of each sample

  std::vector<std::uint32_t> ids_;  // of the current epoch
  std::vector<std::uint32_t> requested_;
  std::vector<std::uint32_t> positions_;  // of each sample; then of the previous epoch
  std::vector<std::uint32_t> positions_before_;
  std::vector<bool> seen_;

  QualityReport so_far_;
  std::map<std::string, Tally> tallies_;
  std::map<std::string, Extreme> extremes_;
  Lateness by_place_;
  Lateness by_cost_;
};

}  // namespace headrace
