#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/batch/batch_maker.h"
#include "engine/lanes/lane_parts.h"
#include "engine/lanes/lane_policy.h"
#include "engine/lanes/lane_stats.h"
#include "engine/lanes/stall_meter.h"
#include "engine/loop/loop_context.h"
#include "engine/step/step_work.h"
#include "headrace/batch.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

struct LaneOptions {
  std::uint32_t first_rank = 0;  // of lane 0; the others follow
  bool sources = false;          // batches say which tier their samples came from
  // Whether the block reads numbered below this are done.
  std::function<bool(std::uint64_t)> have_come;
  // Called before a batch is handed over, with whether it ends its epoch: the status is the error
  // that takes its place. Nothing: it is not known yet; the loop will ask again. Empty: no check.
  std::function<std::optional<Status>(bool ends_epoch)> check = nullptr;
  // Set to the step for which a consumer waits, and since when; null: nobody wants to know.
  StepWait* wait = nullptr;
};

// A step with the deliveries of the lanes. Deliveries to lanes whose consumer is gone became
// releases.
struct AdmittedStep {
  Step step;
  std::vector<StepWork*> works;  // each other lane's part
};

// The lanes of a node: divides each step between them, makes its batches, hands these over in the
// order of the plan, and measures what their consumers wait for.
//
// A step is admitted for all lanes at once, with the memory of all its batches. A batch exceeds the
// budget instead of waiting if the waiting consumer holds all of the budget, or if the batch is
// larger than the budget. A batch is handed over when its samples are done, the lane's earlier
// batches have been handed over, and the block reads that are due are done.
//
// Thread safety: called by the engine's loop, one call at a time.
// Ownership: the arguments of the constructor outlive it. It owns the steps in work until it is
// destroyed: completions point at them.
class Lanes {
 public:
  Lanes(const LoopContext& loop, LaneOptions options, std::span<const EngineLane> lanes,
        const BatchMaker& batch_maker);
  ~Lanes();

  // Whether one more step may be admitted: no lane is full, and one at least takes batches and has
  // not enough rows to copy.
  [[nodiscard]] bool has_room() const;
  // The step that is next to be admitted.
  void SetNext(Step step);
  [[nodiscard]] bool has_next() const { return next_.has_value(); }
  // Steps that the lane furthest ahead has had taken.
  [[nodiscard]] std::uint64_t taken() const;
  // Makes the batches of the next step, as far as there is memory. True: each lane has its own.
  //
  // Errors: those of BatchMaker::Make(), once all batches before were handed over and taken
  Result<bool> MakeBatches();
  // Admits the next step, after MakeBatches() returned true.
  AdmittedStep Admit();
  // The work that waits in each lane, by lane, including `works`, which were just admitted.
  [[nodiscard]] std::vector<LaneWork> Loads(std::span<StepWork* const> works) const;

  // Hands over what is complete. Returns how the run ends, valid as long as this object: the error
  // of a step, or OK after the last step, where `plan_ended`; the caller then calls End(). Null:
  // the run goes on. A pointer, because the loop asks after every event: an optional costs `exact`
  // 0.9 % of its instructions.
  const Status* HandOver(bool plan_ended);
  void End(const Status& status);

  void Leave(std::uint32_t lane);
  void OnTaken(std::uint32_t lane, std::int64_t now_ns);
  void OnWaiting(std::uint32_t lane, std::int64_t now_ns);
  // Before and after the loop's moves: adds the waits up to now; says what they are for from now.
  void AccountStalls();
  void SetStallCauses();

  // Calls visit(work) for each part of a step in work.
  void VisitWork(const std::function<void(StepWork&)>& visit) const;
  [[nodiscard]] LanesStats stats() const;  // without what LaneQueues knows

 private:
  struct Lane;

  void SetWait() const;
  static bool CopiesEnough(const Lane& lane);
  Result<std::shared_ptr<Batch>> MakeBatch(const Lane& lane) const;
  StepWork* AdmitTo(Lane& lane);
  void Weigh(StepWork& work) const;
  [[nodiscard]] BySource<std::uint64_t> ReadsOf(const StepWork& work) const;
  const Status* HandOver(Lane& lane);
  [[nodiscard]] bool Check(StepWork& work) const;
  void HandOver(Lane& lane, StepWork& work);
  const Status* EndLanes();
  void NoteSubstitutions(StepWork& work);
  static void EndLane(Lane& lane, const Status& status);
  void Account(Lane& lane, std::int64_t now_ns) const;
  [[nodiscard]] StallCause CurrentCause(const Lane& lane) const;
  [[nodiscard]] Lane* FindHolding() const;

  const LoopContext& loop_;
  const LaneOptions options_;
  const BatchMaker& batch_maker_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::optional<Step> next_;  // its deliveries are with the lanes
  Status end_;                // of the step that ended the run
  LanesStats stats_;          // without `lanes`
};

}  // namespace headrace
