#pragma once

// Schedules: files that define in advance what the ranks and tiers of a node do in each step.
// LaneSchedule (loader/session/) follows them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry/registry.h"
#include "engine/lanes/lane_policies.h"
#include "engine/lanes/lane_policy.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

class Index;

// The reads and decode threads that all ranks of the job on this node may use at once.
LaneBudget LaneBudgetOf(const LoaderConfig& config);

// A hash of the transform of a sample, equal in all runs: the key of preprocessing times.
std::uint64_t TransformHash(const NodeOptions& options);

// What follows a schedule in one run.
struct ScheduledRun {
  // Makes a placement that does what the schedule says, and then goes on as `inner`, which was made
  // for the schedule's start and with nothing held. `held`: blocks that the node's tiers hold at
  // the run's start, [tier][...].
  using Place = std::function<Result<std::unique_ptr<Placement>>(
      std::unique_ptr<Placement> inner, const std::vector<std::vector<std::uint32_t>>& held)>;

  std::unique_ptr<LanePolicy> policy;
  Place place;  // not null
};

// A schedule that was opened for a session.
//
// Thread safety: none.
// Ownership: outlives its runs.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // The first step that it plans.
  [[nodiscard]] virtual Position start() const = 0;

  // Errors: FailedPrecondition  the run begins before the schedule
  //         DataLoss            the file has changed since it was opened
  virtual Result<ScheduledRun> Begin(Position start) = 0;
};

struct SchedulePlanOptions {
  std::string path;                         // of the file; an existing schedule is replaced
  Position start;                           // the first step planned
  std::uint64_t steps = ~std::uint64_t{0};  // at most; fewer if the job ends before
  double train_seconds = 0;                 // of a step; 0: unknown, so lanes are always balanced
};

// The bytes of a schedule, and its name for messages.
struct ScheduleFile {
  std::span<const std::byte> bytes;
  std::string name;
};

// Plans and reads schedules. A row of ScheduleFormats(). Stateless.
//
// Thread safety: every method may be called from any thread.
class ScheduleFormat {
 public:
  virtual ~ScheduleFormat() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;

  // Plans, for every step, the threads of each lane and the tiers' operations, and writes the plan
  // to a file atomically. Reads no sample. Returns the number of steps.
  //
  // Errors: those of ResolveConfig, of making its order and placement, of AtomicFile
  //         InvalidArgument  `path` is an existing file that is not a schedule
  [[nodiscard]] virtual Result<std::uint64_t> Write(const std::shared_ptr<const Index>& index,
                                                    const LoaderOptions& options,
                                                    const SchedulePlanOptions& plan) const = 0;

  // Reads the whole file once. Its bytes outlive the schedule. The number of threads may differ
  // from the job's.
  //
  // Errors: FailedPrecondition  the schedule is for another job; the message says what differs; or
  //                             of a version that this library does not read
  //         DataLoss            not a schedule, or damaged
  [[nodiscard]] virtual Result<std::unique_ptr<Schedule>> Open(
      ScheduleFile file, const Index& index, const LoaderConfig& config,
      const LanePolicyRequest& request) const = 0;
};

// The core has none. Files are written and read in the format of the first row.
Registry<ScheduleFormat>& ScheduleFormats();

// As ScheduleFormat::Write, in the format of the first row.
//
// Errors: FailedPrecondition  there is no format
Result<std::uint64_t> WriteSchedule(const std::shared_ptr<const Index>& index,
                                    const LoaderOptions& options, const SchedulePlanOptions& plan);

}  // namespace headrace
