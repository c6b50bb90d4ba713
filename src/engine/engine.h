#pragma once

// engine/ runs a plan: reads, verifies, decodes, assembles batches, within byte budgets. A state
// machine fed by completions, which owns no thread and reads no clock but those it is given.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "base/mutex.h"
#include "engine/engine_parts.h"
#include "engine/loop/engine_options.h"
#include "engine/loop/inbox.h"
#include "engine/tiers/tier_cache.h"
#include "fetch/held_samples.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"
#include "plan/order.h"

namespace headrace {

struct LoopEvent;
struct StepWork;

// Runs a plan for the ranks of a node: walks ahead as far as the budgets allow, reads, verifies,
// decodes each sample into its own slot whatever order it arrives in, and hands each rank, its
// *lane*, its batches in order. What is delivered depends on the plan and the data, never on the
// order in which work finishes.
//
// A step goes through: admitted (batch memory of every lane taken) -> its reads issued (staging
// memory taken) -> its samples decoded, by tasks whose deadline is the step's -> each lane's batch
// complete -> handed over when the lane's earlier ones have been. A step is admitted only with its
// batch memory, reads are issued in the order of the plan, and decoding waits for nothing: so the
// oldest step can always proceed, and waits cannot deadlock. Two kinds of request exceed the
// budget instead of waiting, one at a time, counted in stats().*.beyond_*: a batch while the
// waiting consumer holds all of the budget; a batch or a sample that is larger than the budget.
//
// Lanes share everything but their batch memory. A step is admitted for all of them at once: one
// whose consumer stops taking holds up the others when its memory, or its batches_max, is full, and
// stats().lanes names it. Reads and tasks have deadlines by step, and within a step such that all
// lanes finish it at the same time; a LanePolicy may split them between lanes otherwise.
//
// Components do the work, each with a state of its own: Lanes and LaneQueues, Rows, Residency of
// blocks, TierFiller. The engine is their inbox and the loop that calls them, one call at a time,
// under one lock. They share a LoopContext, and report to the client that their constructor got.
//
// Thread safety: every method may be called from any thread. The loop runs on one thread
// at a time: the one that posted a completion, or the executor's, where alone steps are planned.
// Ownership: the caller owns what Parts points at, which outlives the engine; batches may outlive
// both. Only one at a time of several engines that share memory may run.
// Shutdown: Stop(), then Close() until it returns true, before destruction.
class Engine {
 public:
  using Parts = EngineParts;

  // `tiers`: the node's tiers, planned for `order`, or null; not used if no field is stored.
  Engine(const Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
         std::unique_ptr<TierCache> tiers = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  void Start();  // Once.
  // The lane's consumer took a batch out of the sink, now or at `taken_ns`.
  void OnTaken(std::uint32_t lane = 0, std::optional<std::int64_t> taken_ns = {});
  // The consumer found the sink empty and waits, from now until the next batch.
  void OnWaiting(std::uint32_t lane = 0);
  // The consumer is gone. Its sink is not called after this returns; the other lanes continue.
  void Leave(std::uint32_t lane);
  // HeldSamples::TakeParcel() for node `to`, in an order whose nodes exchange samples.
  void TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done);
  // For another node: `done` gets the entry of `sample` in the tier that the plan assigns to it. If
  // it is not there, reads it from storage, before this node's own reads with a later deadline.
  // What comes before this node's first step waits for that.
  //
  // Errors: NotFound           the plan does not keep it now
  //         ResourceExhausted  too many are being brought
  //         Cancelled          the run has ended; those of reading and of inserting
  void Bring(SampleId sample, std::uint64_t deadline, TakenEntry done);
  // Whether other nodes still need samples of this one for steps that its own ranks have taken.
  [[nodiscard]] bool owes() const;
  void Stop();  // Issues no more work and delivers nothing more. Work in flight continues.
  // Stop(), then waits up to `timeout_ns` (negative: no limit) until nothing is in flight. Returns
  // false if something still is: call it again. Not from a thread that the executor or the store
  // needs to finish that work.
  bool Close(std::int64_t timeout_ns = -1);
  // Nothing is in flight and nothing will be without another call.
  [[nodiscard]] bool quiescent() const;
  [[nodiscard]] EngineStats stats() const;

 private:
  struct Components;
  // Other nodes' requests that the run leaves open.
  struct Unanswered {
    std::vector<TakenParcel> parcels;
    std::vector<TakenEntry> entries;
  };

  std::uint64_t HandleAll(std::span<LoopEvent> events);
  // Every move that the state allows.
  void Advance() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  bool AdmitStep() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  std::optional<Step> PlanStep() HEADRACE_LOCKS_REQUIRED(state_mutex_);  // releases it meanwhile
  std::optional<Status> CheckData(bool ends_epoch) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void Tick() HEADRACE_LOCKS_REQUIRED(state_mutex_);  // tells the components what time it is
  void SplitShares(const Step& step, std::span<StepWork* const> works)
      HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void HandOver() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  void End(const Status& status) HEADRACE_LOCKS_REQUIRED(state_mutex_);
  Unanswered DropQueues() HEADRACE_LOCKS_REQUIRED(state_mutex_);
  static void TellEnded(const Unanswered& unanswered);

  const Parts parts_;
  std::stop_source stop_;  // requested by Stop()
  const std::unique_ptr<Inbox<LoopEvent>> inbox_;

  mutable Mutex state_mutex_;
  const std::unique_ptr<Order> order_;      // used by the loop alone, without the lock
  const std::unique_ptr<TierCache> tiers_;  // null: none; under the lock, but for PlanStep()
  const std::unique_ptr<Components> components_ HEADRACE_PT_GUARDED_BY(state_mutex_);
  // Batches taken that the loop does not know of yet: other nodes may need samples of the last.
  std::atomic<std::uint64_t> taken_posted_ = 0;
  bool started_ HEADRACE_GUARDED_BY(state_mutex_) = false;
  bool plan_ended_ HEADRACE_GUARDED_BY(state_mutex_) = false;
  // Whether the release of batch memory calls this engine.
  bool hooked_ HEADRACE_GUARDED_BY(state_mutex_) = true;
  bool closed_ HEADRACE_GUARDED_BY(state_mutex_) = false;
};

}  // namespace headrace
