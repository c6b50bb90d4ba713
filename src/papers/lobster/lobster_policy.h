#pragma once

// papers/lobster/ has Lobster's policies for the lanes of a node (Liu et al. 2022): shares of reads
// and decode threads that follow the load, a limit of decode threads, and schedules: plans of lanes
// and tiers that are made before the run. They exist to reproduce and compare the paper's results.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/lanes/lane_policies.h"
#include "engine/lanes/lane_policy.h"
#include "headrace/status.h"
#include "model/lane_shares.h"
#include "model/share_corrector.h"

namespace headrace {

class DecodeLimit;

// The lanes' loads for a step, as nanoseconds of reading one by one instead of bytes: so each lane
// has its own rate, although a LoadModel has one rate for all. `decodes`: decode threads of each
// lane.
std::vector<LaneLoad> LoadsOf(std::span<const LaneWork> work, std::span<const int> decodes);

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

// Lobster's policy (Liu et al. 2022, section 4.4). It shares reads in proportion to the queues
// while no lane is predicted to be late; otherwise so that the last lane finishes as early as
// possible. It shares decode threads in proportion to the waiting decodes. It measures the times of
// reads and decodes during the run.
//
// This gives the first shares, once every lane's rate is known. Before that, nothing can be
// predicted, and reads are shared in proportion to the waiting bytes. Later, shares change slowly
// (ShareCorrector), so that noise of single steps changes none.
class LobsterLanePolicy final : public LanePolicy {
 public:
  struct Options {
    LaneBudget budget;
    // kBinarySearch: the paper's own search, run every corrector.period steps. Its result is used
    // if it promises a gain of corrector.gain_min.
    LobsterOptions::Search search = LobsterOptions::Search::kMakespan;
    double theta = 0.1;
    ShareCorrector::Options corrector;
    DecodeLimit* decode_limit = nullptr;  // outlives the policy; null: all of the budget, always
  };

  explicit LobsterLanePolicy(const Options& options);
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;
  [[nodiscard]] LaneCounts counts() const override;

 private:
  void SplitDecodes(std::span<const LaneWork> work);
  void SplitReads(std::span<const LaneWork> work);
  void Jump(std::span<const LaneLoad> loads, const LobsterDecision& decision);

  const Options options_;
  const LoadModel model_;
  LaneShares reads_;
  LaneShares decodes_;
  int decodes_given_ = 0;
  bool rates_known_ = false;                 // the rate of every lane that reads was measured
  std::optional<ShareCorrector> corrector_;  // set from then on; never with kBinarySearch
  std::uint64_t steps_ = 0;
  std::atomic<std::uint64_t> stragglers_ = 0;
  std::atomic<std::uint64_t> corrections_ = 0;
  std::atomic<std::uint32_t> decode_threads_ = 0;
};

// Rows of LanePolicies(). The first is the paper's policy: after a schedule's end its runs continue
// with it. The second uses the paper's own search, the third none.
const LanePolicyFactory& LobsterPolicyFactory();
const LanePolicyFactory& LobsterSearchPolicyFactory();
const LanePolicyFactory& ProportionalPolicyFactory();

}  // namespace headrace
