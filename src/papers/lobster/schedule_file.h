#pragma once

// The file of a schedule, the offline plan of one node: the threads that load and decode for each
// lane in every step, and what its tiers keep (Liu et al. 2022, section 4.5). It is computed before
// a run and read back step for step while the engine runs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "headrace/status.h"
#include "loader/planning/schedules.h"
#include "plan/order.h"
#include "plan/placement/placement.h"

namespace headrace {

// Threads of one lane, a rank of the node, in one step.
struct LaneThreads {
  std::uint32_t loading = 1;
  std::uint32_t decode = 0;

  friend bool operator==(const LaneThreads&, const LaneThreads&) = default;
};

struct ScheduledStep {
  Position at;
  std::vector<LaneThreads> lanes;
  std::vector<CacheOp> ops;  // of the placement, in its order

  friend bool operator==(const ScheduledStep&, const ScheduledStep&) = default;
};

// What a schedule is for. A run may follow it only if all of this is equal.
struct ScheduleHeader {
  static constexpr std::uint32_t kLanesMax = 1024;
  static constexpr std::uint32_t kThreadsMax = 65536;

  std::array<std::uint64_t, 2> dataset{};  // fingerprint of the index
  std::array<std::uint64_t, 2> plan{};     // of the order's and the placement's parameters
  std::uint64_t seed = 0;
  std::uint32_t world_size = 1;
  std::uint32_t first_rank = 0;       // lane 0; lanes are ranks one after the other
  std::uint32_t lanes = 1;            // in [1, kLanesMax]; all must be ranks of the world
  std::uint32_t loading_threads = 1;  // of all lanes together, at most; in [lanes, kThreadsMax]
  std::uint32_t decode_threads = 0;   // of all lanes together, at most; up to kThreadsMax
  Position start;                     // of the first step

  friend bool operator==(const ScheduleHeader&, const ScheduleHeader&) = default;
};

// Errors: InvalidArgument  a value outside the ranges above; the message names it
Status CheckScheduleHeader(const ScheduleHeader& header);

// Errors: InvalidArgument  threads for too few or too many lanes, a lane without a loading thread,
//                          more threads than the header has, an invalid op (no tier on either side
//                          or twice the same, a tier beyond kTiersMax, a move or an eviction that
//                          is `ahead`); the message names it
Status CheckScheduledStep(const ScheduleHeader& header, const ScheduledStep& step);

// Writes a schedule piece by piece: format version 1, docs/schedule-format.md.
//
// Thread safety: none.
// Ownership: the writer keeps the sink until its destruction.
// Errors: an error of the sink is returned by the call that meets it and by every later call.
// Shutdown: without Finish() a reader refuses the schedule as truncated.
class ScheduleWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  // Writes the header. Errors: those of CheckScheduleHeader and of the sink.
  static Result<ScheduleWriter> Make(const ScheduleHeader& header, Sink sink);

  // Adds the next step. Steps are consecutive, from header.start on: the next of the epoch, or the
  // first of the next epoch.
  //
  // Errors: those of CheckScheduledStep and of the sink
  //         InvalidArgument     a step out of order
  //         ResourceExhausted   more ops than fit into a record of 64 MiB
  Status Add(const ScheduledStep& step);

  // Ends the schedule. Call once, last. Errors: those of the sink.
  Status Finish();

 private:
  ScheduleWriter(const ScheduleHeader& header, Sink sink)
      : header_(header), sink_(std::move(sink)) {}

  Status WriteRecord(std::span<const std::byte> payload);

  ScheduleHeader header_;
  Sink sink_;
  std::optional<Position> last_;
  std::vector<LaneThreads> threads_;  // of the last step
  std::uint64_t steps_ = 0;
  std::uint64_t digest_ = 0;  // of everything written
  Status status_;
};

// Reads a schedule and checks all that it reads: bytes, order and values.
//
// Thread safety: none.
// Ownership: the caller keeps the bytes alive, and unchanged, while reading.
// Memory: one step, whatever the file contains.
class ScheduleReader {
 public:
  // Reads the header.
  //
  // Errors: DataLoss            not a schedule, damaged or truncated; the message gives the offset
  //         FailedPrecondition  a version that this library does not read
  static Result<ScheduleReader> Open(ScheduleFile file);

  [[nodiscard]] const ScheduleHeader& header() const { return header_; }
  [[nodiscard]] const std::string& name() const { return file_.name; }

  // Errors: FailedPrecondition  a run from `start` begins before the schedule
  [[nodiscard]] Status CheckStart(Position start) const;

  // Reads the next step into `step`, whose memory is reused; returns false after the last.
  //
  // Errors: DataLoss  as for Open(). Steps returned before are valid; later calls return the same
  // error
  Result<bool> Next(ScheduledStep& step);

 private:
  ScheduleReader(ScheduleFile file, const ScheduleHeader& header)
      : file_(std::move(file)), header_(header) {}

  [[nodiscard]] Status Damaged(std::size_t offset, const std::string& what) const;
  Result<std::span<const std::byte>> Record();
  Status ReadStep(std::span<const std::byte> payload, ScheduledStep& step);
  Status ReadEnd(std::span<const std::byte> payload) const;

  ScheduleFile file_;
  ScheduleHeader header_;
  std::size_t offset_ = 0;  // of the next record
  std::optional<Position> last_;
  std::vector<LaneThreads> threads_;
  std::uint64_t steps_ = 0;
  std::uint64_t digest_ = 0;
  bool ended_ = false;
  Status status_;
};

// Reads a schedule from end to end, so that its errors are known before a run begins, and returns
// its header. Takes time in proportion to the file, and memory for one step.
//
// Errors: those of ScheduleReader::Open and ScheduleReader::Next
Result<ScheduleHeader> VerifySchedule(ScheduleFile file);

}  // namespace headrace
