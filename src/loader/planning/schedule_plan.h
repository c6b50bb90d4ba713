#pragma once

// Schedules: files that say in advance how the ranks of a node share reads and decode threads.
// LaneSchedule (loader/session/) follows one.

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/lanes/lane_policy.h"
#include "loader/config/job.h"
#include "loader/config/loader_options.h"
#include "plan/order.h"
#include "plan/schedule/schedule_file.h"

namespace headrace {

// What may run at once for all ranks of the job here.
LaneBudget LaneBudgetOf(const Job& job);

// Names what is done to a sample, the same in every run: the key of what preprocessing takes.
std::uint64_t TransformHash(const LoaderOptions& options);

// What a schedule for the job says it is for.
ScheduleHeader MakeScheduleHeader(const Index& index, const Job& job, Position start);

// Whether a run of the job may follow a schedule: threads may differ, and where it starts.
//
// Errors: FailedPrecondition  it is for something else; the message says for what
Status CheckScheduleIsFor(const ScheduleHeader& schedule, const ScheduleHeader& job);

struct SchedulePlanOptions {
  std::string path;                         // of the file; a schedule there is replaced
  Position start;                           // the first step planned
  std::uint64_t steps = ~std::uint64_t{0};  // at most; the job's end comes first
  double train_seconds = 0;                 // of a step; 0: not known, lanes are always levelled
};

// Plans the threads of every lane and what tiers do, step for step, and writes it as a file, whole
// or not at all. Reads no sample. Returns the number of steps.
//
// Errors: those of SettleJob, of making its order and placement, of MakeSchedule, of AtomicFile
//         InvalidArgument  there is a file that is no schedule
Result<std::uint64_t> WriteSchedule(const std::shared_ptr<const Index>& index,
                                    LoaderOptions options, const SchedulePlanOptions& plan);

}  // namespace headrace
