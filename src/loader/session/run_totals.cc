#include "loader/session/run_totals.h"

#include <utility>

#include "loader/session/engine_run.h"
#include "observe/stats_sums.h"

namespace headrace {

RunTotals::RunTotals(std::uint32_t lanes) : steps_(lanes), delivered_(lanes), first_epoch_(lanes) {
  ended_.lanes.resize(lanes);
}

void RunTotals::Begin(std::shared_ptr<EngineRun> run) {
  MutexLock lock(mutex_);
  run_ = std::move(run);
}

void RunTotals::End(EngineRun& run) {
  std::shared_ptr<EngineRun> dies_last;
  MutexLock lock(mutex_);
  AddRun(run.stats(), ended_);
  for (LaneStats& lane : ended_.lanes) lane.ready = lane.steps_in_work = lane.queued_reads = 0;
  ended_ns_ += run.running_ns();
  dies_last = std::move(run_);
}

void RunTotals::OnTaken(std::uint64_t run, std::uint32_t lane, const Batch& batch,
                        std::int64_t taken_ns) {
  const StepTime step = {.run = run,
                         .epoch = batch.epoch,
                         .step = batch.step,
                         .lane = lane,
                         .admitted_ns = batch.times.admitted_ns,
                         .read_ns = batch.times.read_ns,
                         .done_ns = batch.times.done_ns,
                         .busy_ns = batch.times.busy_ns,
                         .handed_ns = batch.times.handed_ns,
                         .taken_ns = taken_ns,
                         .stall_ns = batch.times.stall_ns,
                         .samples = batch.samples.size(),
                         .bytes = batch.times.sample_bytes};
  steps_.Add(step);
  MutexLock lock(mutex_);
  AddBatch(batch, delivered_[lane]);
  std::vector<StepTime>& first = first_epoch_[lane];
  if (first.empty() || (first.front().epoch == step.epoch && first.size() < kStepsRecorded)) {
    first.push_back(step);
  }
}

void RunTotals::AddTo(LoaderStats& stats) const {
  std::vector<StepTime> first_epoch;
  {
    MutexLock lock(mutex_);
    first_epoch = first_epoch_[stats.lane];
    stats.delivered = delivered_[stats.lane];
    stats.engine = ended_;
    stats.running_ns = ended_ns_;
    if (run_ != nullptr) {
      AddRun(run_->stats(), stats.engine);
      stats.running_ns += run_->running_ns();
    }
  }
  const std::vector<StepTime> steps = steps_.steps();
  const auto lanes = static_cast<std::uint32_t>(stats.engine.lanes.size());
  stats.figures = FiguresOf(steps, lanes);
  stats.first_epoch = FiguresOf(first_epoch, lanes)[stats.lane];
  stats.imbalance = ImbalanceOf(steps, lanes);
}

}  // namespace headrace
