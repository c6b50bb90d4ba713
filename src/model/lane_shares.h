#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/lane_load.h"

namespace headrace {

// Divides a node's loading threads among its lanes (Liu et al. 2022, sections 4.2 to 4.4). A step
// of training ends when the slowest rank has its batch, so the aim is a small *makespan*: the
// largest T_L + T_P over the lanes.
//
// Shares are one number for each lane, each at least 1, together at most `budget`, which is at
// least the number of lanes and at most model.threads_max(). Among equal lanes the first is
// preferred. Pure: the same arguments give the same shares on every machine.
using LaneShares = std::vector<int>;

// In proportion to `weights`, at least one for each lane; the sum is exactly `budget`. Remaining
// threads go to the largest remainders. Evenly if all weights are 0. If the budget is below the
// number of lanes, the heaviest lanes get one each; that is for decode threads, which serve any
// lane.
LaneShares Proportional(std::span<const std::uint64_t> weights, int budget);

// In proportion to the lengths of the queues: right while no lane is late.
LaneShares ProportionalShares(std::span<const LaneLoad> lanes, int budget);

// The shares with the least max(makespan, enough_seconds) and, among these, the fewest threads:
// exact, by binary search over the makespan. O(lanes * log(budget)) a probe, about 60 probes.
LaneShares MakespanShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                          double enough_seconds = 0);

// The paper's algorithm 1, corrected and fitted to the shared budget, to compare with
// MakespanShares(). Searches each lane alone for the number of threads that brings T_L + T_P
// closest to `train_seconds` (equation 2); then, while the slowest lane takes longer than
// `train_seconds`, moves threads between lanes if that brings it closer to the others (equation 3).
// `tolerance_seconds` is the paper's tau, above 0.
LaneShares BinarySearchShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              double train_seconds, double tolerance_seconds);

// T_L + T_P of each lane with its share.
std::vector<double> SecondsOfLanes(std::span<const LaneLoad> lanes, const LoadModel& model,
                                   const LaneShares& shares);
double Makespan(std::span<const LaneLoad> lanes, const LoadModel& model, const LaneShares& shares);

// Whether a lane is late: largest - smallest > theta * train_seconds. The paper does not define
// imbalance; this definition is also the one that is reported.
bool IsImbalanced(std::span<const double> seconds, double train_seconds, double theta);

// Adds threads to `shares` up to `budget`, one by one, each to the lane that is then the slowest,
// as long as this makes it faster.
void SpreadSpare(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                 LaneShares& shares);

struct LobsterOptions {
  enum class Search : std::uint8_t { kMakespan, kBinarySearch };

  double train_seconds = 0;  // T_train of a step
  double theta = 0.1;        // of train_seconds: beyond it a lane is a straggler
  Search search = Search::kMakespan;
};

struct LobsterDecision {
  LaneShares shares;
  bool straggler = false;  // predicted with proportional shares
};

// Proportional shares, if they make no lane a straggler; otherwise the result of a search, never
// with a larger makespan than proportional shares.
LobsterDecision LobsterShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              const LobsterOptions& options);

}  // namespace headrace
