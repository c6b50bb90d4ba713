#include "runtime/schedule/lane_schedule.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/unique_fd.h"
#include "engine/lanes/schedule_policy.h"
#include "index/index.h"

namespace headrace {
namespace {

constexpr std::string_view kSharedDeadline = "shared_deadline";
constexpr std::string_view kLobster = "lobster";
constexpr std::string_view kLobsterSearch = "lobster_search";
constexpr std::string_view kFixed = "fixed";
constexpr std::array kNames = {kSharedDeadline, kLobster, kLobsterSearch, kFixed};

}  // namespace

std::span<const std::string_view> LanePolicyNames() { return kNames; }

// A schedule's file, mapped: replaced by another it stays what it was.
class MappedSchedule {
 public:
  static Result<std::unique_ptr<MappedSchedule>> Open(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return Failed(path, errno);
    struct stat status = {};
    if (::fstat(fd.get(), &status) != 0) return Failed(path, errno);
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
      return Status(StatusCode::kInvalidArgument, "schedule " + path +
                                                      ": must be a file that "
                                                      "`headrace plan --schedule` wrote");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return Failed(path, errno);
    return std::unique_ptr<MappedSchedule>(
        new MappedSchedule({static_cast<const std::byte*>(data), size}));
  }
  ~MappedSchedule() { (void)::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }
  MappedSchedule(const MappedSchedule&) = delete;
  MappedSchedule& operator=(const MappedSchedule&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  Position start;  // of its header

 private:
  explicit MappedSchedule(std::span<const std::byte> bytes) : bytes_(bytes) {}

  static Status Failed(const std::string& path, int error) {
    if (error == ENOENT || error == ENOTDIR) {
      std::string names;
      for (const std::string_view name : kNames) {
        names.append(names.empty() ? "'" : ", '").append(name).append("'");
      }
      return {StatusCode::kInvalidArgument,
              "schedule: got '" + path + "', must be one of " + names +
                  ", or a file that `headrace plan --schedule` wrote; there is none of that name"};
    }
    return {StatusCode::kUnavailable,
            "opening schedule " + path + ": " + std::generic_category().message(error)};
  }

  const std::span<const std::byte> bytes_;
};

Result<std::unique_ptr<LaneSchedule>> LaneSchedule::Open(const Index& index, const Job& job) {
  HEADRACE_ASSIGN_OR_RETURN(PreprocessModel learned,
                            PreprocessModel::FromRows(job.options.preprocess, {}));
  std::unique_ptr<MappedSchedule> mapped;
  const std::string& name = job.options.schedule;
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    HEADRACE_ASSIGN_OR_RETURN(mapped, MappedSchedule::Open(name));
    const Result<ScheduleReader> reader = ScheduleReader::Open(mapped->bytes());
    if (!reader.ok()) return reader.status().WithContext("schedule " + name);
    const ScheduleHeader& header = reader.value().header();
    mapped->start = header.start;
    const Status same = CheckScheduleIsFor(header, MakeScheduleHeader(index, job, header.start));
    if (!same.ok()) return same.WithContext("schedule " + name);
  }
  return std::unique_ptr<LaneSchedule>(
      new LaneSchedule(job, std::move(learned), std::move(mapped)));
}

LaneSchedule::LaneSchedule(const Job& job, PreprocessModel learned,
                           std::unique_ptr<MappedSchedule> mapped)
    : name_(job.options.schedule),
      lanes_(job.options.job.ranks),
      budget_(LaneBudgetOf(job)),
      mapped_(std::move(mapped)),
      limit_({.budget = budget_, .transform = TransformHash(job.options)}, std::move(learned)) {}

LaneSchedule::~LaneSchedule() = default;

std::unique_ptr<LanePolicy> LaneSchedule::MakeLobster(LobsterOptions::Search search) {
  return std::make_unique<LobsterLanePolicy>(
      LobsterLanePolicy::Options{.budget = budget_, .search = search, .decode_threads = &limit_});
}

Result<std::shared_ptr<LanePolicy>> LaneSchedule::Begin(Position start) {
  std::shared_ptr<LanePolicy> policy;
  auto verdict = std::make_shared<ScheduleVerdict>();
  if (mapped_ != nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(
        policy, SchedulePolicy::Open({.file = mapped_->bytes(), .start = start, .verdict = verdict},
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
  if (mapped_ == nullptr) return Status();
  return {StatusCode::kInvalidArgument,
          "schedule " + name_ +
              ": a sampler says what comes when, and a schedule file is for the job's own order; "
              "leave one of them out"};
}

std::span<const std::byte> LaneSchedule::file() const {
  return mapped_ == nullptr ? std::span<const std::byte>() : mapped_->bytes();
}

Position LaneSchedule::file_start() const {
  return mapped_ == nullptr ? Position() : mapped_->start;
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
