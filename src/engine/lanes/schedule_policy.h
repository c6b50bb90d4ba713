#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/lanes/lane_policy.h"
#include "model/share_corrector.h"
#include "plan/schedule/schedule_file.h"
#include "plan/schedule/scheduled_placement.h"

namespace headrace {

// The shares that a schedule says, step for step: those of a plan that was made before the run (Liu
// et al. 2022, section 4.5). Where lanes turn out to take other times than planned, threads move on
// top of it, a few at a time (ShareCorrector). Past the schedule's end it is `beyond`.
class SchedulePolicy final : public LanePolicy {
 public:
  struct Options {
    ScheduleFile file;  // whose bytes outlive the policy
    Position start;     // of the run
    bool correct = true;
    ShareCorrector::Options corrector = {.period = 16, .moves_max = 2};
    std::shared_ptr<const ScheduleVerdict> verdict;  // of a placement; null: there is none
  };

  // Errors: those of ScheduleReader::Open
  //         FailedPrecondition  the run begins before the schedule
  static Result<std::unique_ptr<SchedulePolicy>> Open(const Options& options,
                                                      std::unique_ptr<LanePolicy> beyond);

  // Errors: those of ScheduleReader::Next, of the verdict
  //         FailedPrecondition  the run is at a step that the schedule does not have
  Status Split(Position at, std::span<const LaneWork> work, std::span<LaneShare> shares) override;
  [[nodiscard]] LaneCounts counts() const override;

 private:
  struct Seen {  // a step, to be looked back on
    std::vector<LaneLoad> loads;
    LaneShares shares;
  };

  SchedulePolicy(const Options& options, ScheduleReader reader, std::unique_ptr<LanePolicy> beyond);
  void Correct(std::span<const LaneWork> work, std::span<const LaneShare> shares);
  void LookBack();

  const Options options_;
  ScheduleReader reader_;
  const std::unique_ptr<LanePolicy> beyond_;
  const LoadModel model_;
  ScheduledStep step_;
  bool begun_ = false;
  bool ended_ = false;
  std::vector<int> moved_;  // by lane: reads more, or fewer, than planned; together 0
  std::vector<Seen> seen_;  // since shares were looked at last
  std::atomic<std::uint64_t> corrections_ = 0;
  std::atomic<std::uint64_t> planned_ = 0;
};

}  // namespace headrace
