#include "loader/session/lane_schedule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/lanes/schedule_policy.h"
#include "index/index.h"

namespace headrace {
namespace {

constexpr std::string_view kSharedDeadline = "shared_deadline";
constexpr std::string_view kLobster = "lobster";
constexpr std::string_view kLobsterSearch = "lobster_search";
constexpr std::string_view kFixed = "fixed";
constexpr std::array kNames = {kSharedDeadline, kLobster, kLobsterSearch, kFixed};

Result<std::shared_ptr<const MappedFile>> MapSchedule(const std::string& path) {
  constexpr std::string_view kWritten = "a file that `headrace plan --schedule` wrote";
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (file.ok() && !file.value()->bytes().empty()) return file;
  if (file.ok() || file.status().code() == StatusCode::kInvalidArgument) {
    return Status(StatusCode::kInvalidArgument,
                  "schedule " + path + ": must be " + std::string(kWritten));
  }
  if (file.status().code() != StatusCode::kNotFound) {
    return Status(StatusCode::kUnavailable, std::string(file.status().message()))
        .WithContext("opening schedule " + path);
  }
  std::string names;
  for (const std::string_view name : kNames) {
    names.append(names.empty() ? "'" : ", '").append(name).append("'");
  }
  return Status(StatusCode::kInvalidArgument, "schedule: got '" + path + "', must be one of " +
                                                  names + ", or " + std::string(kWritten) +
                                                  "; there is none of that name");
}

}  // namespace

std::span<const std::string_view> LanePolicyNames() { return kNames; }

Result<std::unique_ptr<LaneSchedule>> LaneSchedule::Open(const Index& index,
                                                         const LoaderConfig& config) {
  HEADRACE_ASSIGN_OR_RETURN(PreprocessModel learned,
                            PreprocessModel::FromRows(config.options.preprocess, {}));
  std::shared_ptr<const MappedFile> file;
  Position start;
  const std::string& name = config.options.schedule;
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
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

std::unique_ptr<LanePolicy> LaneSchedule::MakeLobster(LobsterOptions::Search search) {
  return std::make_unique<LobsterLanePolicy>(
      LobsterLanePolicy::Options{.budget = budget_, .search = search, .decode_threads = &limit_});
}

Result<std::shared_ptr<LanePolicy>> LaneSchedule::Begin(Position start) {
  std::shared_ptr<LanePolicy> policy;
  auto verdict = std::make_shared<ScheduleVerdict>();
  if (file_ != nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(
        policy, SchedulePolicy::Open({.file = file(), .start = start, .verdict = verdict},
                                     MakeLobster(LobsterOptions::Search::kMakespan)));
  } else if (lanes_ == 1 || name_ == kSharedDeadline) {
    policy = nullptr;  // One lane has all there is, by whatever policy.
  } else if (name_ == kFixed) {
    policy = std::make_shared<FixedLanePolicy>(budget_);
  } else {
    policy = MakeLobster(name_ == kLobster ? LobsterOptions::Search::kMakespan
                                           : LobsterOptions::Search::kBinarySearch);
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
  return {StatusCode::kInvalidArgument,
          "schedule " + name_ +
              ": a sampler says what comes when, and a schedule file is for the job's own order; "
              "leave one of them out"};
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
