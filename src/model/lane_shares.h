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

// The paper's algorithm 1, with the repairs that lane_shares.cc lists and nothing else, to compare
// with MakespanShares(). Begins with proportional shares. Searches each lane alone, with up to
// `budget` threads, for the number that brings T_L + T_P closest to `train_seconds` (equation 2);
// a lane that is closer than `tolerance_seconds`, the paper's tau, above 0, keeps what it has.
//
// The algorithm does not look at other lanes, so it never uses equation 3, and the lanes together
// may get more than `budget`: see FitShares(). The paper gives no bound. What holds: a lane is
// within tau of training, or no number of threads up to `budget` brings it closer. So where all is
// within the budget, a lane that can be in time is late by at most tau or half of what the next
// number of threads that is faster would save.
LaneShares BinarySearchShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              double train_seconds, double tolerance_seconds);

// What lanes have of `shares` if these are more than `budget` threads, for which the paper has no
// rule: threads in excess take turns on those there are, so each lane has its part of the budget,
// in proportion to its share, at least 1. Shares that fit stay.
LaneShares FitShares(LaneShares shares, int budget);

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
  enum class Search : std::uint8_t {
    kMakespan,      // MakespanShares(): exact
    kBinarySearch,  // the paper's; needs train_seconds, until then all is proportional
  };

  double train_seconds = 0;  // T_train of a step; 0: unknown
  double theta = 0.1;        // of train_seconds: beyond it a lane is a straggler
  Search search = Search::kMakespan;
};

struct LobsterDecision {
  LaneShares shares;
  bool straggler = false;  // predicted with proportional shares
};

// Proportional shares, if they make no lane a straggler; otherwise the result of a search. That of
// kMakespan is never slower than proportional shares; the paper's may be, as it slows down lanes
// that are ahead of training.
LobsterDecision LobsterShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              const LobsterOptions& options);

}  // namespace headrace
