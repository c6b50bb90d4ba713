#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/loader_stats.h"
#include "headrace/status.h"
#include "loader/config/loader_config.h"
#include "loader/session/owner_process.h"
#include "loader/session/row_sources.h"
#include "loader/session/run_totals.h"
#include "model/preprocess_model.h"
#include "observe/step_times.h"
#include "plan/order.h"

namespace headrace {

class ByteStore;
class LaneSchedule;
class OtherNodes;
class SessionTiers;

// What a session reports: where rows come from, statistics, measured times.
//
// Thread safety: every method may be called from any thread. In a forked child every method
// returns FailedPrecondition, or nothing: its locks may be held by threads that it does not have.
// Ownership: the parts outlive it.
class SessionReports {
 public:
  struct Parts {
    std::shared_ptr<const Index> index;
    const LoaderConfig* config = nullptr;
    const SessionTiers* tiers = nullptr;  // null: there are none
    const ByteStore* store = nullptr;
    const LaneSchedule* schedule = nullptr;
    const OtherNodes* nodes = nullptr;  // null: they are not asked
    const OwnerProcess* process = nullptr;
  };
  explicit SessionReports(const Parts& parts);

  // `run` has started; `run` has been closed.
  void Begin(std::shared_ptr<EngineRun> run) { totals_.Begin(std::move(run)); }
  void End(EngineRun& run) { totals_.End(run); }
  // The consumer of `lane` took a batch of run number `run` at `taken_ns` (CLOCK_MONOTONIC).
  void OnTaken(std::uint64_t run, std::uint32_t lane, const Batch& batch, std::int64_t taken_ns);

  // Tells where the rows of one step of the session's own order come from, for one lane. Reads
  // nothing. With tiers, plans the run again up to that step.
  //
  // Errors: those of OrderFactory::Make
  [[nodiscard]] Result<std::vector<PlannedRow>> Explain(Position position,
                                                        std::uint32_t lane) const;
  // The same for samples of an order that the caller decided.
  [[nodiscard]] Result<std::vector<PlannedRow>> ExplainRows(
      std::span<const SampleId> samples) const;

  [[nodiscard]] Result<LoaderStats> stats(std::uint32_t lane) const;
  // The tiers' part of stats(); cheap enough to call between batches.
  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const;
  // Times of the newest kStepsRecorded batches that each lane took, lane after lane, over all runs.
  [[nodiscard]] Result<std::vector<StepTime>> step_times() const;
  // Measured preprocessing times of this session and of the runs that options.preprocess comes
  // from.
  [[nodiscard]] std::vector<PreprocessRow> decode_times() const;

 private:
  const Parts parts_;
  const std::int64_t device_read_bytes_;  // of the process, when the session was opened
  RowSources sources_;
  RunTotals totals_;
};

}  // namespace headrace
