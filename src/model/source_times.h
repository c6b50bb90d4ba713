#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "headrace/machine_model.h"

namespace headrace {

// A sample to read, and the sources that have it. Storage has every sample.
struct SampleRead {
  double bytes = 0;          // of the sample
  double storage_bytes = 0;  // of the read of storage that it comes with; at least `bytes`
  std::optional<std::size_t> tier = std::nullopt;  // of this node
  std::optional<std::size_t> peer = std::nullopt;  // the tier of another node, in its list
};

// Finds the fastest source of each sample, as RankSources() does, in a few comparisons and without
// allocation: the effect of the number of users on rates is computed once.
//
// If the model lacks a tier or the link, that source is not compared: it is preferred to storage,
// and a tier of this node to another node.
//
// Thread safety: none.
class SourceTimes {
 public:
  // The caller has checked `model` with CheckModel().
  explicit SourceTimes(const MachineModel& model);

  // gamma from now on: nodes that read storage at the same time, this one included; at least 1.
  void SetStorageNodes(double nodes);

  // The fastest source. Of equals a tier of this node, then another node.
  [[nodiscard]] Source::Kind Fastest(const SampleRead& read) const;

 private:
  // Seconds of one user's read by its size: linear between measured sizes.
  class OfSize {
   public:
    OfSize() = default;  // no time
    OfSize(const SizedRates& rates, double users);
    [[nodiscard]] double Seconds(double bytes) const;

   private:
    struct Knot {
      double bytes = 0;
      double seconds = 0;
    };
    std::vector<Knot> knots_;  // ascending; empty: no time
  };

  [[nodiscard]] double OfStorage(double bytes) const;

  const StorageModel storage_;
  const double readers_;  // of one node
  double nodes_ = 0;
  OfSize of_storage_;
  std::vector<OfSize> of_tiers_;
  std::optional<OfSize> of_link_;
};

}  // namespace headrace
