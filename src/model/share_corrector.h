#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/lane_shares.h"

namespace headrace {

// Adjusts the lanes' shares while a job runs: a plan made before it becomes wrong when storage
// slows down or one lane's samples turn out larger.
//
// Every `period` steps it averages each lane's loads, and scales the lane's predicted loading time
// by its error (measured / predicted). If other shares promise a makespan smaller by `gain_min`, it
// moves threads towards them, `moves_max` at a time: from the lane with too many that is furthest
// ahead without one, to the slowest lane with too few. Small steps and a threshold keep noise from
// moving threads back and forth.
//
// Deterministic: no clock; the same calls give the same shares.
// Thread safety: none.
class ShareCorrector {
 public:
  struct Options {
    int period = 16;         // steps, at least 1
    int moves_max = 2;       // threads that change lanes in one correction, at least 1
    double gain_min = 0.05;  // of the makespan, in [0, 1)
    double scale_max = 8;    // measured / predicted is kept in [1 / scale_max, scale_max]
  };

  // `shares`: one for each lane, each at least 1; their sum is the budget, at most
  // model.threads_max().
  ShareCorrector(const Options& options, LoadModel model, LaneShares shares);

  // Adds one step: the load of each lane, and how long its loading took (0: not known). Returns
  // whether shares() changed.
  bool Observe(std::span<const LaneLoad> lanes, std::span<const double> load_seconds);

  [[nodiscard]] const LaneShares& shares() const { return shares_; }
  [[nodiscard]] std::uint64_t corrections() const { return corrections_; }

 private:
  struct Window {
    LaneLoad sum;
    double measured = 0;   // seconds of steps that were measured,
    double predicted = 0;  // and the prediction for the same steps
  };

  [[nodiscard]] std::vector<LaneLoad> CorrectedLoads() const;
  bool Move(std::span<const LaneLoad> lanes, const LaneShares& wanted, LaneShares& shares) const;

  Options options_;
  LoadModel model_;
  int budget_ = 0;
  LaneShares shares_;
  std::vector<Window> windows_;  // by lane
  int steps_ = 0;                // in the windows
  std::uint64_t corrections_ = 0;
};

}  // namespace headrace
