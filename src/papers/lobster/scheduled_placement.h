#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/status.h"
#include "papers/lobster/schedule_file.h"
#include "plan/placement/placement.h"

namespace headrace {

// The first difference between a schedule and the plan that follows it. The placement writes it,
// the engine reads it.
//
// Thread safety: none; both run on the engine's thread.
struct ScheduleVerdict {
  Status status;  // the first error
};

struct ScheduledPlacementOptions {
  ScheduleFile file;  // its bytes outlive the placement
  Position start;     // the first step to plan: of the schedule or later
  // Blocks that the node's tiers hold at the start, [tier][...]. The ops of the first step change
  // them to the schedule's.
  std::vector<std::vector<std::uint32_t>> held;
  std::shared_ptr<ScheduleVerdict> verdict;  // not null
};

// A placement that follows a schedule: the ops of each step are those of the file. Planning is
// deterministic, so a difference means another job or another version: the verdict names the step,
// and the caller must end the run. Past the file's last step, `inner` continues alone.
//
// `inner` is the placement that the schedule was made with, at the schedule's first step and with
// no blocks held.
//
// Errors: those of ScheduleReader
//         FailedPrecondition  `start` lies before the schedule's first step; the plan up to `start`
//                             differs from the file
Result<std::unique_ptr<Placement>> MakeScheduledPlacement(std::unique_ptr<Placement> inner,
                                                          ScheduledPlacementOptions options);

}  // namespace headrace
