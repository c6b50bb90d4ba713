#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch.h"
#include "index/index.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"
#include "runtime/loader_options.h"
#include "runtime/loader_stats.h"
#include "runtime/numa/numa.h"
#include "runtime/observe/step_times.h"

namespace headrace {

class BatchSink;
class KeptTiers;

// One plan in progress: what the consumers of its lanes say to it.
//
// Thread safety: every method may be called from any thread. After the run has ended they do
// nothing.
class NodeRun {
 public:
  virtual ~NodeRun() = default;

  // The lane's consumer took a batch out of its sink, when CLOCK_MONOTONIC was `taken_ns`.
  virtual void OnTaken(std::uint32_t lane, const Batch& batch, std::int64_t taken_ns) = 0;
  // It found its sink empty and waits.
  virtual void OnWaiting(std::uint32_t lane) = 0;
  // It is gone; its sink is not called once this has returned. The others go on.
  virtual void Leave(std::uint32_t lane) = 0;
};

// A job on one node: one engine for the ranks [rank, rank + ranks) of options.job, its *lanes*, and
// everything that they share: storage, tiers, plan, memory, threads. A *run* is a plan in progress:
// started at a position, it goes on, epoch after epoch, until it ends, fails, is stopped, or
// another is started.
//
// Capacities in options (memory, tiers, threads) are those of one rank; the node has them `ranks`
// times.
//
// Thread safety: every method may be called from any thread.
// Ownership: batches handed out may outlive the job; sinks outlive the run that they are given to.
// Shutdown: the destructor stops the run and waits for its reads. Not in a forked child: there it
// must not be destroyed (see forked()), and every method is FailedPrecondition.
class NodeJob {
 public:
  // Asked with the bytes that the job is about to take, before it takes any.
  using Admit = std::function<Status(std::uint64_t bytes)>;

  // `kept`: where its tiers in memory come from, and go to; null: they are its own. With several
  // lanes on several NUMA nodes, what is read and decoded for a lane stays on its node: threads,
  // staging and batch memory.
  //
  // Errors: those of Loader::Open, and of `admit`
  static Result<std::unique_ptr<NodeJob>> Open(std::shared_ptr<const Index> index,
                                               LoaderOptions options,
                                               std::shared_ptr<KeptTiers> kept = nullptr,
                                               const NumaRequest& numa = NumaRequest(),
                                               const Admit& admit = nullptr);
  ~NodeJob();
  NodeJob(const NodeJob&) = delete;
  NodeJob& operator=(const NodeJob&) = delete;

  [[nodiscard]] const LoaderOptions& options() const;
  [[nodiscard]] std::uint32_t lanes() const;
  [[nodiscard]] std::span<const BatchField> schema() const;
  [[nodiscard]] std::uint64_t steps_per_epoch() const;
  [[nodiscard]] const Index& index() const;
  [[nodiscard]] OrderParameters order_parameters() const;
  [[nodiscard]] const std::optional<ExpectedInflation>& expected_inflation() const;
  // In a child of the process that opened it: its threads are the parent's.
  [[nodiscard]] bool forked() const;

  // Ends the run, if there is one, and starts one of the job's own order. `sinks`: one a lane, told
  // nothing more of the run before.
  //
  // Errors: those of OrderFactory::Make, and of following a schedule
  Result<std::shared_ptr<NodeRun>> Start(Position position, std::vector<BatchSink*> sinks);

  // The same with an order somebody else decided: one epoch, one lane. Only where the job's own
  // order is `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  several lanes; batch ends that do not ascend to the number of ids, an
  //                          epoch of 2^24 up
  Result<std::shared_ptr<NodeRun>> StartList(ListOrderOptions list, BatchSink* sink);

  // Ends the run; its sinks are told nothing.
  void Stop();

  // Does a piece of the work of the run on the calling thread; false: there is none that waits.
  bool Help();

  // Where the rows of one step of the job's own order come from, for one lane. Reads nothing; with
  // tiers plans the run again up to there.
  //
  // Errors: those of OrderFactory::Make
  Result<std::vector<PlannedRow>> Explain(Position position, std::uint32_t lane) const;
  // The same for rows of an order somebody else decided.
  Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const;

  [[nodiscard]] Result<LoaderStats> stats(std::uint32_t lane) const;
  // Of stats() the tiers alone, for a look between batches.
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const;
  // The newest batches that were taken, lane after lane: the last kStepsKept of each, over all
  // runs.
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const;
  // What preprocessing was seen to take, in this job and those that options.preprocess is of.
  [[nodiscard]] std::vector<PreprocessModel::Row> learned() const;

 private:
  class Impl;
  explicit NodeJob(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
