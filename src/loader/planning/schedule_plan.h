#pragma once

// Schedules: files that define in advance how the ranks of a node share reads and decode threads.
// LaneSchedule (loader/session/) follows them.

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/lanes/lane_policy.h"
#include "loader/config/loader_config.h"
#include "loader/config/loader_options.h"
#include "plan/order.h"
#include "plan/papers/lobster/schedule_file.h"

namespace headrace {

// The reads and decode threads that all ranks of the job on this node may use at once.
LaneBudget LaneBudgetOf(const LoaderConfig& config);

// A hash of the transform of a sample, equal in all runs: the key of preprocessing times.
std::uint64_t TransformHash(const NodeOptions& options);

// The header of a schedule for the job.
ScheduleHeader MakeScheduleHeader(const Index& index, const LoaderConfig& config, Position start);

// Checks that a run of the job may follow a schedule. The number of threads and the start may
// differ.
//
// Errors: FailedPrecondition  the schedule is for another job; the message says what differs
Status CheckScheduleIsFor(const ScheduleHeader& schedule, const ScheduleHeader& job);

struct SchedulePlanOptions {
  std::string path;                         // of the file; an existing schedule is replaced
  Position start;                           // the first step planned
  std::uint64_t steps = ~std::uint64_t{0};  // at most; fewer if the job ends before
  double train_seconds = 0;                 // of a step; 0: unknown, so lanes are always balanced
};

// Plans, for every step, the threads of each lane and the tiers' operations, and writes the plan to
// a file atomically. Reads no sample. Returns the number of steps.
//
// Errors: those of ResolveConfig, of making its order and placement, of MakeSchedule, of AtomicFile
//         InvalidArgument  `path` is an existing file that is not a schedule
Result<std::uint64_t> WriteSchedule(const std::shared_ptr<const Index>& index,
                                    const LoaderOptions& options, const SchedulePlanOptions& plan);

}  // namespace headrace
