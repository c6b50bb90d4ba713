#include "loader/session/lane_schedule.h"

#include <utility>

#include "base/format/errors.h"
#include "engine/lanes/lane_policies.h"
#include "headrace/index.h"

namespace headrace {
namespace {

Result<std::shared_ptr<const MappedFile>> MapSchedule(const std::string& path) {
  if (ScheduleFormats().rows().empty()) return LanePolicies().Get(path).status();
  constexpr std::string_view kWritten = "a file that `headrace plan --schedule` wrote";
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (file.ok() && !file.value()->bytes().empty()) return file;
  if (file.ok() || file.status().code() == StatusCode::kInvalidArgument) {
    return InvalidArgument("schedule {}: must be {}", path, kWritten);
  }
  if (file.status().code() != StatusCode::kNotFound) {
    return Status(StatusCode::kUnavailable, std::string(file.status().message()))
        .WithContext("opening schedule " + path);
  }
  return InvalidArgument("schedule: got '{}', must be one of {}, or {}; there is none of that name",
                         path, LanePolicies().Names(), kWritten);
}

}  // namespace

Result<std::unique_ptr<LaneSchedule>> LaneSchedule::Open(const Index& index,
                                                         const LoaderConfig& config) {
  HEADRACE_ASSIGN_OR_RETURN(PreprocessModel measured,
                            PreprocessModel::FromRows(config.options.preprocess, {}));
  std::unique_ptr<LaneSchedule> schedule(new LaneSchedule(config, std::move(measured)));
  const LanePolicyRequest request{.budget = LaneBudgetOf(config),
                                  .decode_times = &schedule->decode_times_};
  if (const LanePolicyFactory* const policies = LanePolicies().Find(schedule->name_)) {
    // One lane has all there is, by whatever policy.
    if (config.options.job.ranks > 1) schedule->make_policy_ = policies->Open(request);
    return schedule;
  }
  HEADRACE_RETURN_IF_ERROR(schedule->OpenFile(index, config, request));
  return schedule;
}

LaneSchedule::LaneSchedule(const LoaderConfig& config, PreprocessModel measured)
    : name_(config.options.schedule),
      decode_times_(TransformHash(config.options), std::move(measured)) {}

Status LaneSchedule::OpenFile(const Index& index, const LoaderConfig& config,
                              const LanePolicyRequest& request) {
  HEADRACE_ASSIGN_OR_RETURN(file_, MapSchedule(name_));
  HEADRACE_ASSIGN_OR_RETURN(
      schedule_, ScheduleFormats().rows().front()->Open({.bytes = file_->bytes(), .name = name_},
                                                        index, config, request));
  return Status();
}

Result<std::shared_ptr<LanePolicy>> LaneSchedule::Begin(Position start) {
  std::shared_ptr<LanePolicy> policy;
  ScheduledRun::Place place;
  if (schedule_ != nullptr) {
    if (file_->has_lost()) {
      return DataLoss("schedule {}: the file was cut while it was in use; write it again", name_);
    }
    HEADRACE_ASSIGN_OR_RETURN(ScheduledRun run, schedule_->Begin(start));
    policy = std::move(run.policy);
    place = std::move(run.place);
  } else if (make_policy_ != nullptr) {
    policy = make_policy_();
  }
  MutexLock lock(mutex_);
  if (policy_ != nullptr) {
    const LaneCounts counts = policy_->counts();
    ended_.stragglers += counts.stragglers;
    ended_.corrections += counts.corrections;
    ended_.planned += counts.planned;
  }
  policy_ = policy;
  place_ = std::move(place);
  return policy;
}

Status LaneSchedule::BeginList() {
  if (schedule_ == nullptr) return Status();
  return InvalidArgument(
      "schedule {}: a sampler says what comes when, and a schedule file is for the job's own "
      "order; leave one of them out",
      name_);
}

ScheduledRun::Place LaneSchedule::place() const {
  MutexLock lock(mutex_);
  return place_;
}

ScheduleStats LaneSchedule::stats() const {
  MutexLock lock(mutex_);
  LaneCounts counts;
  if (policy_ != nullptr) counts = policy_->counts();
  return {.name = name_,
          .stragglers = ended_.stragglers + counts.stragglers,
          .corrections = ended_.corrections + counts.corrections,
          .planned_steps = ended_.planned + counts.planned,
          .decode_threads = counts.decodes};
}

}  // namespace headrace
