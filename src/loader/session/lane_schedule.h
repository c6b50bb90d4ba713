#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/lanes/decode_limit.h"
#include "engine/lanes/lane_policy.h"
#include "loader/config/job.h"
#include "loader/planning/schedule_plan.h"
#include "model/preprocess_model.h"
#include "observe/loader_stats.h"
#include "plan/schedule/scheduled_placement.h"

namespace headrace {

// By which policy a node's job shares reads and decode threads between its ranks, over all of its
// runs: LoaderOptions::schedule, made real.
//
// Thread safety: every method may be called from any thread; one run at a time.
// Ownership: what it hands out for a run is in use until that run is closed, and dies with it or
// with the next Begin(), whichever comes later.
class LaneSchedule {
 public:
  // Errors: InvalidArgument     no policy of that name, and no such file; lists the names
  //         FailedPrecondition  a schedule for another job; the message says what differs
  //         DataLoss            not a schedule, or damaged: all of it is read, once
  static Result<std::unique_ptr<LaneSchedule>> Open(const Index& index, const Job& job);

  // For a run of the job's own order from `start` on, its policy; null: every lane has everything,
  // earliest deadline first.
  //
  // Errors: those of SchedulePolicy::Open
  Result<std::shared_ptr<LanePolicy>> Begin(Position start);
  // Whether a run may be of a list that somebody else ordered.
  //
  // Errors: InvalidArgument  a schedule file says what the job's own order is
  Status BeginList();

  // The file that is followed, for the placement of the run begun last; no bytes: there is none.
  [[nodiscard]] ScheduleFile file() const;
  [[nodiscard]] Position file_start() const { return file_start_; }
  [[nodiscard]] std::shared_ptr<ScheduleVerdict> verdict() const;

  [[nodiscard]] DecodeObserver* observer() { return &limit_; }
  [[nodiscard]] ScheduleStats stats() const;
  // What was learned of preprocessing, as a machine profile keeps it.
  [[nodiscard]] std::vector<PreprocessModel::Row> learned() const { return limit_.rows(); }

 private:
  LaneSchedule(const Job& job, PreprocessModel learned, std::shared_ptr<const MappedFile> file,
               Position file_start);

  const std::string name_;  // of the policy, or the file's path
  const std::uint32_t lanes_;
  const LaneBudget budget_;
  const std::shared_ptr<const MappedFile> file_;  // null: none
  const Position file_start_;                     // of its header
  DecodeLimit limit_;

  mutable Mutex mutex_;
  std::shared_ptr<LanePolicy> policy_ HEADRACE_GUARDED_BY(mutex_);  // of the newest run
  std::shared_ptr<ScheduleVerdict> verdict_ HEADRACE_GUARDED_BY(mutex_);
  LaneCounts ended_ HEADRACE_GUARDED_BY(mutex_);  // of runs before
};

}  // namespace headrace
