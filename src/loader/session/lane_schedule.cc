#include "loader/session/lane_schedule.h"

#include <utility>

#include "base/format/errors.h"
#include "engine/lanes/lane_policies.h"
#include "engine/papers/lobster/lobster_policy.h"
#include "engine/papers/lobster/schedule_policy.h"
#include "index/index.h"

namespace headrace {
namespace {

Result<std::shared_ptr<const MappedFile>> MapSchedule(const std::string& path) {
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
  HEADRACE_ASSIGN_OR_RETURN(PreprocessModel learned,
                            PreprocessModel::FromRows(config.options.preprocess, {}));
  std::shared_ptr<const MappedFile> file;
  Position start;
  const std::string& name = config.options.schedule;
  if (LanePolicies().Find(name) == nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(file, MapSchedule(name));
    HEADRACE_ASSIGN_OR_RETURN(const ScheduleHeader header,
                              VerifySchedule({.bytes = file->bytes(), .name = name}));
    start = header.start;
    const Status same = CheckScheduleIsFor(header, MakeScheduleHeader(index, config, header.start));
    if (!same.ok()) return same.WithContext("schedule " + name);
  }
  return std::unique_ptr<LaneSchedule>(
      new LaneSchedule(config, std::move(learned), std::move(file), start));
}

LaneSchedule::LaneSchedule(const LoaderConfig& config, PreprocessModel learned,
                           std::shared_ptr<const MappedFile> file, Position file_start)
    : name_(config.options.schedule),
      lanes_(config.options.job.ranks),
      budget_(LaneBudgetOf(config)),
      file_(std::move(file)),
      file_start_(file_start),
      limit_({.budget = budget_, .transform = TransformHash(config.options)}, std::move(learned)) {}

Result<std::shared_ptr<LanePolicy>> LaneSchedule::Begin(Position start) {
  std::shared_ptr<LanePolicy> policy;
  auto verdict = std::make_shared<ScheduleVerdict>();
  const LanePolicyRequest request{.budget = budget_, .decode_threads = &limit_};
  if (file_ != nullptr) {
    if (file_->has_lost()) {
      return DataLoss("schedule {}: the file was cut while it was in use; write it again", name_);
    }
    HEADRACE_ASSIGN_OR_RETURN(
        policy, SchedulePolicy::Open({.file = file(), .start = start, .verdict = verdict},
                                     MakeLobsterPolicy(request)));
  } else if (lanes_ > 1) {  // One lane has all there is, by whatever policy.
    policy = LanePolicies().Find(name_)->Make(request);
  }
  MutexLock lock(mutex_);
  if (policy_ != nullptr) {
    const LaneCounts counts = policy_->counts();
    ended_.stragglers += counts.stragglers;
    ended_.corrections += counts.corrections;
    ended_.planned += counts.planned;
  }
  policy_ = policy;
  verdict_ = std::move(verdict);
  return policy;
}

Status LaneSchedule::BeginList() {
  if (file_ == nullptr) return Status();
  return InvalidArgument(
      "schedule {}: a sampler says what comes when, and a schedule file is for the job's own "
      "order; leave one of them out",
      name_);
}

ScheduleFile LaneSchedule::file() const {
  if (file_ == nullptr) return {};
  return {.bytes = file_->bytes(), .name = name_};
}

std::shared_ptr<ScheduleVerdict> LaneSchedule::verdict() const {
  MutexLock lock(mutex_);
  return verdict_;
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
