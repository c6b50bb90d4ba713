#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/lanes/lane_policy.h"
#include "headrace/machine_model.h"
#include "model/lane_load.h"
#include "model/preprocess_curve.h"
#include "model/preprocess_model.h"
#include "papers/lobster/make_schedule.h"
#include "papers/lobster/schedule_file.h"

namespace headrace {

// Decides the threads of each step of a schedule, from the bytes that its lanes take from each
// source and the machine's rates (Liu et al. 2022, section 4): first how many threads preprocess,
// by what preprocessing takes with so many; each other one reads. Then each lane's: reads by what
// loading takes it (equation 1), decode threads by its bytes.
//
// Without a machine model bytes count as time, and all decode threads preprocess. A tier or a link
// that the model lacks counts as storage. Deterministic.
class PlannedThreads {
 public:
  struct Options {
    LaneBudget budget;  // a decode thread that does not preprocess is one more read
    std::uint32_t lanes = 1;
    std::optional<MachineModel> model;
    double read_bytes = 1;        // of one read
    std::uint64_t transform = 0;  // the key in `preprocess`
    PreprocessModel preprocess;   // as measured; where it knows nothing, the model's rate counts
    double train_seconds = 0;     // of a step; 0: unknown
  };

  explicit PlannedThreads(Options options);

  // A lane has at least one read, and one decode thread if there are as many.
  [[nodiscard]] std::vector<LaneThreads> operator()(std::span<const LaneDemand> demand) const;

 private:
  [[nodiscard]] int DecodeThreads(std::span<const LaneDemand> demand,
                                  std::span<const LaneLoad> loads,
                                  std::span<const std::uint64_t> bytes) const;
  [[nodiscard]] double SecondsOnOne(const LaneDemand& lane, int threads) const;

  Options options_;
  LoadModel load_;
  std::optional<PreprocessCurve> of_a_byte_;  // none: the model has no rate of decoding
};

}  // namespace headrace
