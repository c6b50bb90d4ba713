#pragma once

// quality/ measures how well an order shuffles: M0 to M11 over any sequence of samples, ours or
// another loader's, each compared with a uniform permutation. docs/quality.md has the formulas, and
// the disorder that each measure finds.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"
#include "plan/quality/lateness.h"
#include "plan/quality/nulls.h"
#include "plan/quality/report.h"
#include "plan/quality/tallies.h"

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

// Takes epochs of samples, one after the other, and measures each when it ends. Tallies and
// Lateness sum the statistics of epochs and test them; Conclude() grades.
//
// Memory: 20 bytes a sample of the dataset, for any number of epochs.
// Cost: 10 M samples in 156,250 blocks take about 1.5 s.
// Thread safety: none; const methods may be called concurrently.
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
  explicit QualityMeter(QualityOptions options);

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

  const QualityOptions options_;
  std::uint64_t group_count_ = 0;
  std::vector<std::uint32_t> group_of_;  // of each sample

  std::vector<std::uint32_t> ids_;  // of the current epoch
  std::vector<std::uint32_t> requested_;
  std::vector<std::uint32_t> positions_;  // of each sample; then of the previous epoch
  std::vector<std::uint32_t> positions_before_;
  std::vector<bool> seen_;

  QualityReport so_far_;
  quality::Tallies tallies_;
  quality::Lateness by_place_;
  quality::Lateness by_cost_;  // no groups if there are no costs
};

}  // namespace headrace
