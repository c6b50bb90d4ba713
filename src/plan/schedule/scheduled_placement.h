#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "plan/placement/placement.h"
#include "plan/schedule/schedule_file.h"

namespace headrace {

// What is found wrong with a schedule while it is followed. Whoever plans says it here, whoever
// runs the plan looks. Not thread-safe: both are the engine's.
struct ScheduleVerdict {
  Status status;  // the first mistake
};

struct ScheduledPlacementOptions {
  ScheduleFile file;  // whose bytes outlive the placement
  Position start;     // the first step that is asked for, of the schedule or later
  // What the node's tiers hold at the start, [tier][...]: brought to what the schedule has there by
  // the ops of the first step.
  std::vector<std::vector<std::uint32_t>> held;
  std::shared_ptr<ScheduleVerdict> verdict;  // not null
};

// A placement that is held to a schedule: the ops of each step are those of the file. Planning is
// deterministic, so that a difference means another job or another version: the verdict names the
// step, and it is for the caller to end the run. Past the file's last step, `inner` goes on alone.
//
// `inner` is the placement that the schedule was made with, at the schedule's first step and with
// nothing held.
//
// Errors: those of ScheduleReader
//         FailedPrecondition  `start` lies before the schedule's first step; steps up to `start`
//                             are not the file's
Result<std::unique_ptr<Placement>> MakeScheduledPlacement(std::unique_ptr<Placement> inner,
                                                          ScheduledPlacementOptions options);

}  // namespace headrace
