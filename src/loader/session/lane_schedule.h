#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory/mapped_file.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/lanes/lane_policy.h"
#include "engine/papers/lobster/decode_limit.h"
#include "loader/config/loader_config.h"
#include "loader/planning/schedule_plan.h"
#include "model/preprocess_model.h"
#include "observe/loader_stats.h"
#include "plan/papers/lobster/scheduled_placement.h"

namespace headrace {

// The policy by which a session shares reads and decode threads between its ranks, over all of its
// runs. Made from LoaderOptions::schedule.
//
// Thread safety: every method may be called from any thread. At most one run exists at a time.
// Ownership: objects returned for a run live until that run is closed or until the next Begin(),
// whichever comes later.
class LaneSchedule {
 public:
  // Errors: InvalidArgument     neither a policy nor a file has that name; the message lists
  //                             the policies
  //         FailedPrecondition  the schedule is for another job; the message says what differs
  //         DataLoss            not a schedule, or damaged; the whole file is read once
  static Result<std::unique_ptr<LaneSchedule>> Open(const Index& index, const LoaderConfig& config);

  // Returns the policy for a run of the session's own order from `start` on. Null: lanes share
  // everything, earliest deadline first.
  //
  // Errors: DataLoss  the schedule file was cut since it was opened
  //         those of SchedulePolicy::Open
  Result<std::shared_ptr<LanePolicy>> Begin(Position start);
  // Checks that a run may follow a list that the caller ordered.
  //
  // Errors: InvalidArgument  there is a schedule file: it fits the session's own order only
  Status BeginList();

  // The schedule file of the newest run, for its placement; empty if there is none.
  [[nodiscard]] ScheduleFile file() const;
  [[nodiscard]] Position file_start() const { return file_start_; }
  [[nodiscard]] std::shared_ptr<ScheduleVerdict> verdict() const;

  [[nodiscard]] DecodeObserver* observer() { return &limit_; }
  [[nodiscard]] ScheduleStats stats() const;
  // The measured preprocessing times, in the form of a machine profile.
  [[nodiscard]] std::vector<PreprocessModel::Row> learned() const { return limit_.rows(); }

 private:
  LaneSchedule(const LoaderConfig& config, PreprocessModel learned,
               std::shared_ptr<const MappedFile> file, Position file_start);

  const std::string name_;  // of the policy, or the file's path
  const std::uint32_t lanes_;
  const LaneBudget budget_;
  const std::shared_ptr<const MappedFile> file_;  // null: none
  const Position file_start_;                     // of its header
  DecodeLimit limit_;

  mutable Mutex mutex_;
  std::shared_ptr<LanePolicy> policy_ HEADRACE_GUARDED_BY(mutex_);  // of the newest run
  std::shared_ptr<ScheduleVerdict> verdict_ HEADRACE_GUARDED_BY(mutex_);
  LaneCounts ended_ HEADRACE_GUARDED_BY(mutex_);  // of earlier runs
};

}  // namespace headrace
