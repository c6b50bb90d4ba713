#pragma once

// papers/lobster/ has Lobster's policies for the lanes of a node (Liu et al. 2022): shares of reads
// and decode threads that follow the load, a limit of decode threads, and schedules: plans of lanes
// and tiers that are made before the run. They exist to reproduce and compare the paper's results.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/lanes/lane_policies.h"
#include "engine/lanes/lane_policy.h"
#include "headrace/status.h"
#include "model/lane_shares.h"

namespace headrace {

class DecodeLimit;

// The lanes' loads, with a term for each source (equation 1), as nanoseconds of reading one by one
// instead of bytes: so each lane has its own rates, although a LoadModel has one for all. A lane
// whose rate is unknown has the mean of the others'. `decodes`: decode threads of each lane; empty:
// without preprocessing.
std::vector<LaneLoad> LoadsOf(std::span<const LaneWork> work,
                              BySource<std::uint64_t> LaneWork::*bytes,
                              std::span<const int> decodes = {});
// T_train: a rank that is ready early waits for the others in its own time, so the least of the
// lanes' own times; 0: unknown.
double TrainSeconds(std::span<const LaneWork> work);
// Whether the rate of every source that lanes have queued reads of was measured.
bool RatesKnown(std::span<const LaneWork> work);

// The model for these loads.
LoadModel ModelOfReads(std::uint32_t reads);

// Gives the rest of `budget` to lanes, so that it is used up.
void FillShares(std::span<const LaneLoad> loads, const LoadModel& model, int budget,
                LaneShares& shares);

// In proportion to the lanes' queues, anew at each step: decode threads by the bytes of the step,
// reads by the samples that wait. What Lobster's policy does while it predicts no lane to be late.
class ProportionalLanePolicy final : public LanePolicy {
 public:
  explicit ProportionalLanePolicy(LaneBudget budget) : budget_(budget) {}
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;

 private:
  const LaneBudget budget_;
};

// Lobster's policy (Liu et al. 2022, section 4.4), anew at each step, from what the plan says of
// its reads: by source, with the times that reads of that source took during the run. It shares
// reads in proportion to the queues while no lane is predicted to be late; otherwise so that the
// last lane finishes as early as possible. It shares decode threads in proportion to the waiting
// decodes; those that a DecodeLimit leaves idle read (section 4.1).
//
// Before the rates are known nothing can be predicted, and reads are shared in proportion to the
// waiting bytes. Shares stay while others promise less than `gain_min`.
class LobsterLanePolicy final : public LanePolicy {
 public:
  struct Options {
    LaneBudget budget;
    // kBinarySearch: reads are as the paper's own algorithm ends, each step: threads that it gives
    // to no lane do not read, and gain_min is not for them.
    LobsterOptions::Search search = LobsterOptions::Search::kMakespan;
    double theta = 0.1;
    double gain_min = 0.05;               // of the makespan, in [0, 1)
    DecodeLimit* decode_limit = nullptr;  // outlives the policy; null: all of the budget, always
  };

  explicit LobsterLanePolicy(const Options& options);
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;
  [[nodiscard]] LaneCounts counts() const override;

 private:
  void SplitDecodes(std::span<const LaneWork> work);
  void SplitReads(std::span<const LaneWork> work);
  void Take(std::span<const LaneLoad> loads, int budget, LaneShares shares);

  const Options options_;
  const LoadModel model_;
  LaneShares reads_;
  LaneShares decodes_;
  int decodes_given_ = 0;
  std::atomic<std::uint64_t> stragglers_ = 0;
  std::atomic<std::uint64_t> corrections_ = 0;
  std::atomic<std::uint32_t> decode_threads_ = 0;
};

// Rows of LanePolicies(). The first is the paper's policy: after a schedule's end its runs continue
// with it. The second uses the paper's own search and stays with its result, the third none.
const LanePolicyFactory& LobsterPolicyFactory();
const LanePolicyFactory& LobsterSearchPolicyFactory();
const LanePolicyFactory& ProportionalPolicyFactory();

}  // namespace headrace
