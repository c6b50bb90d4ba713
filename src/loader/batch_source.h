#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch/batch.h"
#include "loader/batch_queue.h"
#include "model/preprocess_model.h"
#include "observe/loader_stats.h"
#include "observe/step_times.h"
#include "plan/exact_order.h"
#include "plan/order.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"

namespace headrace {

// Where one rank gets its batches: a Loader of this process, or the node process of several ranks.
// A *run* is a plan in progress: started at a position, it goes on, epoch after epoch, until it
// ends, fails, is stopped, or another is started.
//
// Thread safety: every method may be called from any thread; Next() from one at a time.
// Ownership: batches handed out may outlive the source.
// Shutdown: the destructor stops the run and waits for outstanding work within bounds: those of
// NodeJob for storage, those of RemoteLoader for the node process. In a forked child it leaves
// everything to the parent, and every method is FailedPrecondition.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  [[nodiscard]] virtual std::span<const BatchField> schema() const = 0;
  [[nodiscard]] virtual std::uint64_t steps_per_epoch() const = 0;
  // Of the order, every default filled in: what a saved state has to hold.
  [[nodiscard]] virtual OrderParameters order_parameters() const = 0;
  // Where each of them comes from, in words: Planner::origins().
  [[nodiscard]] virtual OrderParameters order_origins() const = 0;
  // Of the order, on this dataset; nothing where none is to be expected, or no closed form is
  // known.
  [[nodiscard]] virtual const std::optional<ExpectedInflation>& expected_inflation() const = 0;

  // Ends the run, if there is one, and starts one of the source's own order at `position`. After an
  // error the run before has ended, too.
  //
  // Errors: Cancelled  Stop() or another Start() was called meanwhile, or Abandon() before
  //         those of OrderFactory::Make
  virtual Status Start(Position position) = 0;

  // The same with an order somebody else decided: one epoch. Only where the source's own order is
  // `exact`.
  //
  // Errors: OutOfRange       an id that the dataset does not have
  //         InvalidArgument  batch ends that do not ascend to the number of ids, an epoch of 2^24
  //         up
  virtual Status StartList(ListOrderOptions list) = 0;

  // The next batch of the run; waits for it `timeout_ns` at most (negative: as long as it takes).
  //
  // Errors: FailedPrecondition  no run; Cancelled  the run was stopped
  //         else why the run cannot go on; it has then ended
  virtual Result<BatchQueue::Taken> Next(std::int64_t timeout_ns) = 0;

  // Ends the run and drops its batches that were not taken. Waits up to `timeout_ns` for its reads
  // (negative: no limit). Returns false if some are still in flight: Start() would wait for them. A
  // run that is still being planned does not start; false then means that the planning goes on.
  virtual bool Stop(std::int64_t timeout_ns = -1) = 0;

  // What remains of `ns` since the run was first asked to end; all of it if it was not, or has
  // ended. So several waits of one ending share one deadline.
  [[nodiscard]] virtual std::int64_t LeftOf(std::int64_t ns) const = 0;

  // Ends the waits of Start() and of the destructor, now and later. Call it before closing.
  virtual void Abandon() = 0;

  // Where the rows of one step of the source's own order come from. Reads nothing; with tiers plans
  // the run again up to there.
  //
  // Errors: those of OrderFactory::Make
  virtual Result<std::vector<PlannedRow>> Explain(Position position) const = 0;
  // The same for rows of an order somebody else decided.
  virtual Result<std::vector<PlannedRow>> ExplainRows(std::span<const SampleId> samples) const = 0;

  [[nodiscard]] virtual Result<LoaderStats> stats() const = 0;
  // Of stats() the tiers alone, for a look between batches.
  [[nodiscard]] virtual std::vector<NamedTierStats> tier_stats() const = 0;
  // The newest batches that were taken, of all ranks of the node: see NodeJob.
  [[nodiscard]] virtual Result<std::vector<StepTime>> step_times() const = 0;
  // What preprocessing was seen to take: NodeJob::learned().
  [[nodiscard]] virtual Result<std::vector<PreprocessModel::Row>> learned() const = 0;
};

}  // namespace headrace
