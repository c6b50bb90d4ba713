#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch/batch.h"
#include "index/index.h"
#include "loader/config/loader_options.h"
#include "loader/ending/run_lifecycle.h"
#include "loader/machine/numa.h"
#include "observe/loader_stats.h"
#include "observe/step_times.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"

namespace headrace {

class BatchSink;
class KeptTiers;

// How long the destructor of a job waits for reads of storage, and then for the rest of its
// shutdown: a tier must be on the disk before another process may open its folder.
constexpr std::int64_t kCloseNs = 1'000'000'000;
constexpr std::int64_t kFlushNs = 10'000'000'000;

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
// Shutdown: the destructor stops the run. It waits for its reads up to kCloseNs since the run was
// first asked to stop, and up to kFlushNs for the writes of its tiers. If storage does not answer
// in time, the process's keeper (loader/ending/) holds the job's threads, memory and tier folders
// until it does. A forked child must not destroy the job (see forked()); there every method is
// FailedPrecondition.
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
  [[nodiscard]] OrderParameters order_origins() const;
  [[nodiscard]] const std::optional<ExpectedInflation>& expected_inflation() const;
  // In a child of the process that opened it: its threads are the parent's.
  [[nodiscard]] bool forked() const;

  // For one call of Start() or StartList(), or calls of Stop() that are one: see RunLifecycle. Who
  // calls from one thread needs none.
  [[nodiscard]] RunTurn TakeTurn();

  // Ends the run, if there is one, waits for its reads, and starts a run of the job's own order.
  // `sinks`: one for each lane. The previous run delivers nothing more to its sinks.
  //
  // Errors: Cancelled  before the run started, Cancel() was called, or a newer turn was taken, as
  //                    Stop() and Start() do
  //         those of OrderFactory::Make, and of following a schedule
  Result<std::shared_ptr<NodeRun>> Start(Position position, const std::vector<BatchSink*>& sinks,
                                         std::optional<RunTurn> turn = std::nullopt);

  // The same with an order somebody else decided: one epoch, one lane. Only where the job's own
  // order is `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  several lanes; batch ends that do not ascend to the number of ids, an
  //                          epoch of 2^24 up
  Result<std::shared_ptr<NodeRun>> StartList(const ListOrderOptions& list, BatchSink* sink,
                                             std::optional<RunTurn> turn = std::nullopt);

  // Ends the run, which delivers nothing more to its sinks, and waits up to `timeout_ns` for its
  // reads (negative: no limit, but Cancel() ends the wait). Returns false if some are still in
  // flight: Start() would wait for them. A run that is still being planned does not start; false
  // then means that the planning goes on. Does nothing to a run whose turn is newer.
  bool Stop(std::int64_t timeout_ns = -1, std::optional<RunTurn> turn = std::nullopt);

  // What remains of `ns` since the run was first asked to end; all of it if it was not, or has
  // ended. So several waits of one ending share one deadline.
  [[nodiscard]] std::int64_t LeftOf(std::int64_t ns) const;

  // No run starts any more: Start() returns Cancelled, now if it waits, and in later calls.
  void Cancel();

  // From now on the destructor does not wait for reads.
  void Abandon() { impatient_ = true; }

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
  std::atomic<bool> impatient_ = false;
};

}  // namespace headrace
