#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/lanes/lane_parts.h"
#include "engine/lanes/lane_policy.h"
#include "engine/lanes/lane_stats.h"
#include "engine/step/step_work.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

// Reads that wait in a lane, and their place there: until reads are added or taken.
struct WaitingReads {
  const RowReads* reads;
  std::size_t lane;
  std::size_t place;
};

// For each lane: the reads and decode tasks that wait, how many are in flight, and how many may be.
// With a LanePolicy the limit is the lane's share; without one there is none.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it; reads are their steps'.
class LaneQueues {
 public:
  // `policy` may be null. `lanes` have an executor and staging memory each.
  LaneQueues(std::vector<EngineLane> lanes, LanePolicy* policy);

  // The lane of a step's part, as given to the constructor.
  [[nodiscard]] const EngineLane& parts(const StepWork& work) const {
    return queues_[work.lane].parts;
  }

  // `early`: ahead of those of its step and of later ones that are queued already.
  void AddReads(const StepWork& work, RowReads reads, bool early = false);
  [[nodiscard]] bool nothing_to_read() const { return waiting_ == 0; }
  // The reads that are due next, of the lanes that may read; nothing: there are none.
  [[nodiscard]] std::optional<WaitingReads> NextReads() const;
  // The reads that wait together with `read`, whether they are due, and their lane may read, or
  // not; nothing: it does not wait.
  [[nodiscard]] std::optional<WaitingReads> ReadsWith(const RowRead& read) const;
  // These reads, which one of the two returned, are issued: the caller has them now.
  RowReads TakeReads(const WaitingReads& waiting);
  // There is no memory for these reads: other lanes are next, until ResumeLanes().
  void HoldLane(const StepWork& work) { queues_[work.lane].held = true; }
  void ResumeLanes();
  // `count` reads have ended.
  void EndReads(const StepWork& work, std::uint32_t count = 1) {
    queues_[work.lane].reads_in_flight -= count;
  }
  // Counts a read, and records the time that it took.
  void LearnRead(const RowRead& read, std::int64_t ns);

  void AddDecode(std::unique_ptr<DecodeTask> task, bool first = false);
  // The lane's next task, if its share allows one more; null: not now.
  std::unique_ptr<DecodeTask> TakeDecode(std::uint32_t lane);
  // A task that TakeDecode() returned has ended.
  void EndDecode(const DecodeTask& task) { --queues_[task.work->lane].decodes_in_flight; }
  // Counts what a task, of these or not, did.
  void CountDecode(const DecodeTask& task);

  // Asks the policy, if there is one, for the shares of the step that was admitted at `at`.
  // `loads`, by lane: without what the queues know.
  //
  // Errors: those of LanePolicy::Split()
  Status Split(Position at, std::vector<LaneWork> loads);

  void Drop();
  // Adds what the queues know.
  void AddTo(std::span<LaneStats> lanes) const;

 private:
  struct Queue {
    EngineLane parts;
    std::deque<RowReads> to_read;  // by the deadlines of their steps
    std::deque<std::unique_ptr<DecodeTask>> to_decode;
    std::uint32_t reads_in_flight = 0;
    std::uint32_t decodes_in_flight = 0;
    bool held = false;  // no memory for its next reads, where it has staging memory of its own
    // As it went lately; 0: unknown.
    BySource<double> read_ns_per_byte;
    double decode_ns_per_byte = 0;
    std::uint64_t sample_bytes = 0;  // LaneStats' ...
    std::uint64_t copied_bytes = 0;
    std::int64_t decode_ns = 0;
    BySource<std::int64_t> read_ns;
  };

  LanePolicy* const policy_;
  std::vector<Queue> queues_;
  std::size_t waiting_ = 0;        // entries of all Queue::to_read
  std::vector<LaneShare> shares_;  // by lane, with a policy
};

inline std::unique_ptr<DecodeTask> LaneQueues::TakeDecode(std::uint32_t lane) {
  Queue& queue = queues_[lane];
  if (queue.to_decode.empty()) return nullptr;
  if (!shares_.empty() && queue.decodes_in_flight >= shares_[lane].decodes) return nullptr;
  std::unique_ptr<DecodeTask> task = std::move(queue.to_decode.front());
  queue.to_decode.pop_front();
  ++queue.decodes_in_flight;
  return task;
}

}  // namespace headrace
