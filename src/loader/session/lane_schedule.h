#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory/mapped_file.h"
#include "base/mutex.h"
#include "engine/lanes/decode_times.h"
#include "engine/lanes/lane_policies.h"
#include "engine/lanes/lane_policy.h"
#include "headrace/loader_stats.h"
#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "loader/planning/schedules.h"
#include "model/preprocess_model.h"

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
  //         those of ScheduleFormat::Open
  static Result<std::unique_ptr<LaneSchedule>> Open(const Index& index, const LoaderConfig& config);

  // Returns the policy for a run of the session's own order from `start` on. Null: lanes share
  // everything, earliest deadline first.
  //
  // Errors: DataLoss  the schedule file was cut since it was opened
  //         those of Schedule::Begin
  Result<std::shared_ptr<LanePolicy>> Begin(Position start);
  // Checks that a run may follow a list that the caller ordered.
  //
  // Errors: InvalidArgument  there is a schedule file: it fits the session's own order only
  Status BeginList();

  // The schedule that the runs follow; null: there is none.
  [[nodiscard]] const Schedule* schedule() const { return schedule_.get(); }
  // Of the newest run, for its placement. Only with a schedule.
  [[nodiscard]] ScheduledRun::Place place() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  [[nodiscard]] DecodeObserver* observer() { return &decode_times_; }
  [[nodiscard]] ScheduleStats stats() const;
  // The measured preprocessing times, in the form of a machine profile.
  [[nodiscard]] std::vector<PreprocessRow> decode_times() const { return decode_times_.rows(); }

 private:
  LaneSchedule(const LoaderConfig& config, PreprocessModel measured);
  Status OpenFile(const Index& index, const LoaderConfig& config, const LanePolicyRequest& request);

  const std::string name_;  // of the policy, or the file's path
  DecodeTimes decode_times_;
  std::shared_ptr<const MappedFile> file_;     // null: none
  std::unique_ptr<Schedule> schedule_;         // of file_
  LanePolicyFactory::MakePolicy make_policy_;  // null: every lane has everything

  mutable Mutex mutex_;
  std::shared_ptr<LanePolicy> policy_ HEADRACE_GUARDED_BY(mutex_);  // of the newest run
  ScheduledRun::Place place_ HEADRACE_GUARDED_BY(mutex_);           // with it
  LaneCounts ended_ HEADRACE_GUARDED_BY(mutex_);                    // of earlier runs
};

}  // namespace headrace
