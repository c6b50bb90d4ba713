#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/lane_load.h"

namespace headrace {

// How many of a node's loading threads each of its lanes gets (Liu et al. 2022, sections 4.2 to
// 4.4). A step of training ends when the slowest rank has its batch, so what counts is the
// *makespan*: the largest T_L + T_P over the lanes.
//
// Everywhere: one number for each lane, each at least 1, together at most `budget`, which is at
// least the number of lanes and at most model.threads_max(). Among equals the first lane is
// preferred. Pure: the same arguments, the same shares, on every machine.
using LaneShares = std::vector<int>;

// In proportion to `weights`, after one for each lane; together exactly `budget`: what is left over
// goes to the largest remainders. All weights 0: evenly. A budget below the number of lanes gives
// the heaviest lanes one each; that is for decode threads, which serve whoever has work.
LaneShares Proportional(std::span<const std::uint64_t> weights, int budget);

// In proportion to the lengths of the queues: right while no lane is late.
LaneShares ProportionalShares(std::span<const LaneLoad> lanes, int budget);

// The shares with the least max(makespan, enough_seconds), with the fewest threads that give it:
// exact, by binary search over the makespan. O(lanes * log(budget)) a probe, about 60 probes.
LaneShares MakespanShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                          double enough_seconds = 0);

// The paper's algorithm 1, as it can run, and made to fit the shared budget: for comparison with
// MakespanShares(). Each lane is searched alone for the number of threads that brings T_L + T_P
// closest to `train_seconds` (equation 2); then threads move between lanes while that brings the
// slowest, if it is later than that, closer to the others (equation 3). `tolerance_seconds` is the
// paper's tau, above 0.
LaneShares BinarySearchShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              double train_seconds, double tolerance_seconds);

// What each lane takes with its share.
std::vector<double> SecondsOfLanes(std::span<const LaneLoad> lanes, const LoadModel& model,
                                   const LaneShares& shares);
double Makespan(std::span<const LaneLoad> lanes, const LoadModel& model, const LaneShares& shares);

// Whether a lane is late: largest - smallest > theta * train_seconds. The paper does not say what
// imbalance is; this is what is reported as such, too.
bool IsImbalanced(std::span<const double> seconds, double train_seconds, double theta);

// Adds threads of `shares` up to `budget`, one after the other to the lane that is slowest then,
// as long as that helps it.
void SpreadSpare(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                 LaneShares& shares);

struct LobsterOptions {
  enum class Search : std::uint8_t { kMakespan, kBinarySearch };

  double train_seconds = 0;  // T_train of a step
  double theta = 0.1;        // of train_seconds: from here on a lane is a straggler
  Search search = Search::kMakespan;
};

struct LobsterDecision {
  LaneShares shares;
  bool straggler = false;  // predicted with proportional shares
};

// Proportional as long as that makes no lane a straggler; else searched, and never a makespan above
// the proportional one's.
LobsterDecision LobsterShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              const LobsterOptions& options);

}  // namespace headrace
