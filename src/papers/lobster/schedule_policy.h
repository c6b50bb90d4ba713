#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/lanes/lane_policy.h"
#include "headrace/status.h"
#include "model/share_corrector.h"
#include "papers/lobster/schedule_file.h"
#include "papers/lobster/scheduled_placement.h"

namespace headrace {

// Follows a schedule, step by step: shares that were planned before the run (Liu et al. 2022,
// section 4.5). If lanes take other times than planned, a ShareCorrector moves a few threads at a
// time. After the schedule's end it uses `beyond`.
class SchedulePolicy final : public LanePolicy {
 public:
  struct Options {
    ScheduleFile file;  // its bytes must outlive the policy
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
  struct Seen {  // a past step
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
  std::vector<int> moved_;  // by lane: reads above or below the plan; their sum is 0
  std::vector<Seen> seen_;  // since shares were last checked
  std::atomic<std::uint64_t> corrections_ = 0;
  std::atomic<std::uint64_t> planned_ = 0;
  std::atomic<std::uint32_t> decodes_ = 0;  // of the step; 0: the schedule has ended
};

}  // namespace headrace
