#include "loader/session/node_job.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/process_id.h"
#include "base/units.h"
#include "engine/engine.h"
#include "loader/config/job.h"
#include "loader/config/planner.h"
#include "loader/config/schema.h"
#include "loader/ending/keeper.h"
#include "loader/ending/run_lifecycle.h"
#include "loader/machine/machine.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/engine_run.h"
#include "loader/session/lane_schedule.h"
#include "loader/session/near_lanes.h"
#include "loader/session/node_tiers.h"
#include "loader/session/open_store.h"

namespace headrace {
namespace {

// Decoding yields to the training loop when both want a core.
constexpr int kDecodeNice = 5;

// The largest block read that staging memory holds two of: one is copied while the next arrives.
std::uint64_t BlockReadBytes(std::uint64_t staging_bytes) {
  const std::uint64_t half = std::max<std::uint64_t>(staging_bytes / 2, 1);
  // Rounded down to what a buffer is charged: see BufferPool.
  const std::uint64_t buffer = half - half % std::max(kBufferAlignment, std::bit_floor(half) / 8);
  return buffer - std::min<std::uint64_t>(buffer, kWideningMax);
}

// What a job takes of the machine's memory.
std::uint64_t MemoryOf(const Job& job) {
  return job.budget.staging_bytes + job.budget.batch_bytes + job.budget.resident_bytes +
         job.budget.pinned_bytes + job.budget.scratch_bytes + job.budget.results_bytes +
         job.options.tiers.memory_bytes();
}

// How many steps' sources Explain() knows.
constexpr std::size_t kSourcesKept = 256;

}  // namespace

class NodeJob::Impl {
 public:
  // Resources whose creation can fail.
  struct Parts {
    std::optional<ExpectedInflation> inflation;
    std::shared_ptr<CellPool> residents;
    std::unique_ptr<NodeTiers> tiers;
    NearLanes near;
    OpenedStore store;
    std::unique_ptr<LaneSchedule> schedule;
  };

  Impl(std::shared_ptr<const Index> index, Job job, Parts parts)
      : index_(std::move(index)),
        options_(std::move(job.options)),
        schema_(std::move(job.schema)),
        steps_per_epoch_(job.steps_per_epoch),
        planner_(std::move(job.planner)),
        budget_(job.budget),
        inflation_(parts.inflation),
        schedule_(std::move(parts.schedule)),
        device_read_bytes_(DeviceReadBytes()),
        residents_(std::move(parts.residents)),
        pinned_(budget_.pinned_bytes == 0 ? nullptr
                                          : std::make_shared<PinnedBlocks>(budget_.pinned_bytes)),
        scratch_(MakeScratch(budget_, options_, job.scratch_share)),
        tiers_(std::move(parts.tiers)),
        near_(std::move(parts.near)),
        store_(std::move(parts.store)),
        steps_(options_.job.ranks),
        delivered_(options_.job.ranks) {
    ended_.lanes.resize(options_.job.ranks);
  }

  ~Impl() { runs_.Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status CheckProcess() const {
    if (ProcessId() == pid_) return Status();
    return Status(StatusCode::kFailedPrecondition,
                  "a loader made in process " + std::to_string(pid_) +
                      " is used in its forked child " + std::to_string(ProcessId()) +
                      ": threads do not survive a fork; make the loader in the child");
  }
  [[nodiscard]] bool forked() const { return ProcessId() != pid_; }

  using MakeTiers = std::function<Result<std::unique_ptr<TierCache>>(NodeTiers&)>;

  using MakeOrder = std::function<Result<std::unique_ptr<Order>>()>;

  // Calls `make_order` and `make_tiers` once no run uses the tiers. `start`: the position in the
  // job's own order; nothing for another order.
  Result<std::shared_ptr<NodeRun>> Begin(const MakeOrder& make_order,
                                         const std::vector<BatchSink*>& sinks,
                                         std::optional<Position> start, const MakeTiers& make_tiers,
                                         std::optional<RunTurn> turn) {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<EngineRun> run,
                              runs_.Begin(
                                  turn.has_value() ? *turn : TakeTurn(),
                                  [&] { return Plan(make_order, start, make_tiers); },
                                  [&](NextRun next) { return StartRun(std::move(next), sinks); }));
    return std::shared_ptr<NodeRun>(std::move(run));
  }

  // As RunLifecycle.
  RunTurn TakeTurn() { return runs_.TakeTurn(); }
  bool End(std::int64_t timeout_ns, std::optional<RunTurn> turn = std::nullopt) {
    return runs_.End(turn.has_value() ? *turn : TakeTurn(), timeout_ns);
  }
  void Cancel() { runs_.Cancel(); }
  std::int64_t LeftOf(std::int64_t ns) { return runs_.LeftOf(ns); }

  bool Help() { return near_.executor().RunOne(); }

  [[nodiscard]] std::vector<std::string> folders() const {
    return tiers_ == nullptr ? std::vector<std::string>() : tiers_->folders();
  }

  void OnTaken(std::uint64_t run, std::uint32_t lane, const Batch& batch, std::int64_t taken_ns) {
    steps_.Add({.run = run,
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
                .bytes = batch.times.sample_bytes});
    MutexLock lock(mutex_);
    AddBatch(batch, delivered_[lane]);
    if (tiers_ == nullptr) return;
    sources_.push_back({{.epoch = batch.epoch, .step = batch.step}, lane, batch.sources});
    if (sources_.size() > kSourcesKept) sources_.pop_front();
  }

  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const {
    std::vector<NamedTierStats> all;
    if (tiers_ == nullptr) return all;
    for (const std::unique_ptr<Tier>& tier : tiers_->tiers()) {
      all.push_back({.name = tier->name(), .stats = tier->stats()});
    }
    return all;
  }

  [[nodiscard]] std::vector<StepTime> step_times() const { return steps_.steps(); }

  [[nodiscard]] LoaderStats stats(std::uint32_t lane) const {
    LoaderStats stats;
    stats.lane = lane;
    {
      MutexLock lock(mutex_);
      stats.delivered = delivered_[lane];
      stats.engine = ended_;
      stats.running_ns = ended_ns_;
      if (run_ != nullptr) {
        AddRun(run_->stats(), stats.engine);
        stats.running_ns += run_->running_ns();
      }
    }
    stats.tiers = tier_stats();
    stats.store = store_.store().stats();
    stats.schedule = schedule_->stats();
    stats.budget = budget_;
    stats.threads = options_.threads;
    stats.cores = UsableCores();
    const std::vector<StepTime> steps = steps_.steps();
    const auto lanes = static_cast<std::uint32_t>(stats.engine.lanes.size());
    stats.figures = FiguresOf(steps, lanes);
    stats.imbalance = ImbalanceOf(steps, lanes);
    stats.index_bytes = index_->file_bytes();
    const std::int64_t read_bytes = DeviceReadBytes();
    stats.device_read_bytes = read_bytes < 0 ? -1 : read_bytes - device_read_bytes_;
    return stats;
  }

  // What a run needs to start.
  struct NextRun {
    std::unique_ptr<Order> order;
    std::shared_ptr<LanePolicy> policy;
    std::unique_ptr<TierCache> tiers;
  };

  Result<NextRun> Plan(const MakeOrder& make_order, std::optional<Position> start,
                       const MakeTiers& make_tiers) {
    NextRun next;
    HEADRACE_ASSIGN_OR_RETURN(next.order, make_order());
    if (start.has_value()) {
      HEADRACE_ASSIGN_OR_RETURN(next.policy, schedule_->Begin(*start));
    } else {
      HEADRACE_RETURN_IF_ERROR(schedule_->BeginList());
    }
    if (tiers_ != nullptr) {
      HEADRACE_ASSIGN_OR_RETURN(next.tiers, make_tiers(*tiers_));
    }
    return next;
  }

  std::shared_ptr<EngineRun> StartRun(NextRun next, const std::vector<BatchSink*>& sinks) {
    EngineOptions options;
    options.batches_max = budget_.batches_max;
    options.coalesce_bytes_max = std::min(options.coalesce_bytes_max, budget_.staging_bytes / 4);
    options.block_read_bytes_max =
        std::min(options.block_read_bytes_max, BlockReadBytes(budget_.staging_bytes));
    // Each made-up read holds one sample.
    const bool reads_storage = ReadsStorage(options_.io);
    if (!reads_storage) {
      options.coalesce_bytes_max = 0;
      options.block_read_bytes_max = 0;
    }
    options.on_error = options_.on_error;
    options.verify = options_.verify && reads_storage;
    options.seed = options_.job.seed;
    Engine::Parts parts{.index = index_.get(),
                        .schema = schema_,
                        .store = &store_.store(),
                        .executor = &near_.executor(),
                        .clock = &clock_,
                        .staging = near_.staging(),
                        .residents = residents_,
                        .pinned = pinned_,
                        .scratch = scratch_,
                        .model = options_.model ? &*options_.model : nullptr,
                        .first_rank = options_.job.rank,
                        .policy = next.policy.get(),
                        .observer = schedule_->observer()};
    for (std::size_t lane = 0; lane < sinks.size(); ++lane) {
      parts.lanes.push_back(near_.lane(lane));
      parts.lanes.back().sink = sinks[lane];
    }
    auto run = std::make_shared<EngineRun>(
        parts, options, std::move(next.order), std::move(next.tiers),
        [this, number = ++run_count_](std::uint32_t lane, const Batch& batch,
                                      std::int64_t taken_ns) {
          OnTaken(number, lane, batch, taken_ns);
        });
    MutexLock lock(mutex_);
    run_ = run;
    return run;
  }

  // stats() has the run until its counters are added to ended_: counters never decrease.
  void OnClosed(EngineRun& run) {
    std::shared_ptr<EngineRun> dies_last;
    MutexLock lock(mutex_);
    AddRun(run.stats(), ended_);
    for (LaneStats& lane : ended_.lanes) lane.ready = lane.steps_in_work = lane.queued_reads = 0;
    ended_ns_ += run.running_ns();
    dies_last = std::move(run_);
  }

  // A lane's place in a plan: what tiers have to do with its rows.
  struct Place {
    Position position;
    std::uint32_t lane = 0;
    std::size_t first_use = 0;  // of the step's deliveries to the node, the lane's first
  };

  // Rows of deliveries; what tiers have to do with them is known of a step of the job's own order.
  [[nodiscard]] Result<std::vector<PlannedRow>> Describe(
      std::span<const Delivery> deliveries,
      const std::optional<Place>& place = std::nullopt) const {
    std::vector<TierNumber> actual;
    std::optional<std::vector<PlannedUse>> planned;
    if (tiers_ != nullptr && place.has_value() && !planner_->reads_blocks()) {
      actual = SourcesOf(place->position, place->lane);
      HEADRACE_ASSIGN_OR_RETURN(planned, tiers_->Planned(place->position));
    }
    const std::size_t first_use = place.has_value() ? place->first_use : 0;
    std::vector<PlannedRow> rows;
    for (std::size_t i = 0; i < deliveries.size(); ++i) {
      const Delivery& delivery = deliveries[i];
      for (const BatchField& field : schema_) {
        PlannedRow row{.slot = delivery.slot, .sample = delivery.sample, .field = field.name};
        if (field.is_inline()) {
          row.source = "index";
        } else {
          HEADRACE_ASSIGN_OR_RETURN(const Extent extent,
                                    index_->extent(field.index_field, delivery.sample));
          HEADRACE_ASSIGN_OR_RETURN(const ObjectInfo object, index_->object(extent.object));
          row.source = delivery.block_read != kNoBlockRead ? "block"
                       : planned.has_value() ? SourceName(planned->at(first_use + i).tier)
                                             : SourceName(kNoTier);
          if (i < actual.size()) row.actual = SourceName(actual[i]);
          row.object = index_->root() + "/" + std::string(object.name);
          row.range = extent.range;
        }
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }

  const std::shared_ptr<const Index> index_;
  const LoaderOptions options_;
  const std::vector<BatchField> schema_;
  const std::uint64_t steps_per_epoch_;
  const std::shared_ptr<const Planner> planner_;
  const Budget budget_;
  const std::optional<ExpectedInflation> inflation_;
  const std::unique_ptr<LaneSchedule> schedule_;  // keeps the newest run's policy

 private:
  [[nodiscard]] std::string SourceName(TierNumber tier) const {
    return tier == kNoTier ? "storage" : tiers_->tiers()[tier]->name();
  }

  // Where the rows of a batch came from, of those taken lately.
  struct Sources {
    Position position;
    std::uint32_t lane = 0;
    std::vector<TierNumber> of_rows;
  };

  [[nodiscard]] std::vector<TierNumber> SourcesOf(Position position, std::uint32_t lane) const {
    MutexLock lock(mutex_);
    for (auto step = sources_.rbegin(); step != sources_.rend(); ++step) {
      if (step->position == position && step->lane == lane) return step->of_rows;
    }
    return {};
  }

  const pid_t pid_ = ProcessId();
  const std::int64_t device_read_bytes_;          // when the loader was opened
  const std::shared_ptr<CellPool> residents_;     // null: the order reads no blocks
  const std::shared_ptr<PinnedBlocks> pinned_;    // null: there is no memory for them
  const std::shared_ptr<ScratchBudget> scratch_;  // null: nothing decodes
  MonotonicClock clock_;
  const std::unique_ptr<NodeTiers> tiers_;  // null: none
  const NearLanes near_;
  OpenedStore store_;

  StepRecorder steps_;

  mutable Mutex mutex_;
  std::shared_ptr<EngineRun> run_ HEADRACE_GUARDED_BY(mutex_);
  std::vector<Delivered> delivered_ HEADRACE_GUARDED_BY(mutex_);  // by lane
  EngineStats ended_ HEADRACE_GUARDED_BY(mutex_);                 // of runs that ended
  std::int64_t ended_ns_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::deque<Sources> sources_ HEADRACE_GUARDED_BY(mutex_);  // of the newest steps, with tiers

  // They share memory and its hook: one at a time.
  RunLifecycle<EngineRun> runs_{clock_, [this](EngineRun& run) { OnClosed(run); }};
  std::uint64_t run_count_ = 0;  // used where a run starts
};

Result<std::unique_ptr<NodeJob>> NodeJob::Open(std::shared_ptr<const Index> index,
                                               LoaderOptions options,
                                               std::shared_ptr<KeptTiers> kept,
                                               const NumaRequest& numa, const Admit& admit) {
  HEADRACE_ASSIGN_OR_RETURN(Job job, SettleJob(index, std::move(options)));
  if (admit != nullptr) HEADRACE_RETURN_IF_ERROR(admit(MemoryOf(job)));
  const Planner& planner = *job.planner;
  HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<LaneSchedule> schedule,
                            LaneSchedule::Open(*index, job));
  HEADRACE_ASSIGN_OR_RETURN(const std::optional<ExpectedInflation> inflation,
                            planner.Inflation(*index));
  std::unique_ptr<NodeTiers> tiers;
  if (!job.options.tiers.tiers.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(tiers,
                              NodeTiers::Open(index, job.schema, job.options.tiers, job.planner,
                                              job.options.verify, std::move(kept)));
  }
  std::shared_ptr<CellPool> residents;
  if (planner.reads_blocks()) {
    HEADRACE_ASSIGN_OR_RETURN(residents,
                              CellPool::Make(planner.resident_units(), planner.unit_bytes()));
  }
  HEADRACE_ASSIGN_OR_RETURN(NearLanes near,
                            NearLanes::Make({.lanes = job.options.job.ranks,
                                             .threads = job.options.threads,
                                             .nice = kDecodeNice,
                                             .staging_bytes = job.budget.staging_bytes,
                                             .batch_bytes = job.budget.batch_bytes,
                                             .shared_batches = job.options.shared_batches},
                                            numa));
  HEADRACE_ASSIGN_OR_RETURN(
      OpenedStore store,
      OpenStore(index, {.io = job.options.io, .remedies = job.options.remedies}));
  auto impl = std::make_unique<Impl>(std::move(index), std::move(job),
                                     Impl::Parts{.inflation = inflation,
                                                 .residents = std::move(residents),
                                                 .tiers = std::move(tiers),
                                                 .near = std::move(near),
                                                 .store = std::move(store),
                                                 .schedule = std::move(schedule)});
  return std::unique_ptr<NodeJob>(new NodeJob(std::move(impl)));
}

NodeJob::NodeJob(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

NodeJob::~NodeJob() {
  impl_->Cancel();
  const bool ended = impl_->End(impatient_ ? 0 : impl_->LeftOf(kCloseNs));
  // Closing files and writing tiers may also wait for storage.
  const std::vector<std::string> folders = impl_->folders();
  DestroyWithin(std::move(impl_), ended ? kFlushNs : 0, folders);
}

const LoaderOptions& NodeJob::options() const { return impl_->options_; }
std::uint32_t NodeJob::lanes() const { return impl_->options_.job.ranks; }
std::span<const BatchField> NodeJob::schema() const { return impl_->schema_; }
std::uint64_t NodeJob::steps_per_epoch() const { return impl_->steps_per_epoch_; }
const Index& NodeJob::index() const { return *impl_->index_; }
OrderParameters NodeJob::order_parameters() const { return impl_->planner_->parameters(); }
OrderParameters NodeJob::order_origins() const { return impl_->planner_->origins(); }
const std::optional<ExpectedInflation>& NodeJob::expected_inflation() const {
  return impl_->inflation_;
}
bool NodeJob::forked() const { return impl_->forked(); }

RunTurn NodeJob::TakeTurn() { return impl_->forked() ? RunTurn{} : impl_->TakeTurn(); }

Result<std::shared_ptr<NodeRun>> NodeJob::Start(Position position,
                                                const std::vector<BatchSink*>& sinks,
                                                std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  HEADRACE_CHECK(sinks.size() == lanes());
  return impl_->Begin([&] { return impl_->planner_->MakeOrder(position); }, sinks, position,
                      [&](NodeTiers& tiers) {
                        const LaneSchedule& schedule = *impl_->schedule_;
                        if (schedule.file().bytes.empty()) return tiers.Begin(position);
                        return tiers.Follow(position, schedule.file_start(), schedule.file(),
                                            schedule.verdict());
                      },
                      turn);
}

Result<std::shared_ptr<NodeRun>> NodeJob::StartList(const ListOrderOptions& list, BatchSink* sink,
                                                    std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  if (!impl_->planner_->follows_lists()) {
    const auto follows = [](const OrderFactory& order) { return order.follows_lists(); };
    return Status(StatusCode::kInvalidArgument,
                  "a list of samples in order '" + impl_->options_.order.name +
                      "': who gives the order wants it kept; use order " + Orders().Names(follows));
  }
  if (lanes() > 1) {
    return Status(StatusCode::kInvalidArgument,
                  "a list of samples for " + std::to_string(lanes()) +
                      " ranks of a node: each rank has a sampler of its own; use "
                      "isolation='thread'");
  }
  const bool ascending = std::is_sorted(list.batch_ends.begin(), list.batch_ends.end());
  const std::uint64_t last = list.batch_ends.empty() ? 0 : list.batch_ends.back();
  if (!ascending || last != list.ids.size()) {
    return Status(StatusCode::kInvalidArgument, "batch ends of a list: must ascend to its " +
                                                    std::to_string(list.ids.size()) +
                                                    " ids, they end at " + std::to_string(last));
  }
  if (list.epoch >= kEpochsMax) {
    return Status(StatusCode::kInvalidArgument,
                  "epoch of a list: got " + std::to_string(list.epoch) + ", must be below " +
                      std::to_string(kEpochsMax));
  }
  const std::uint64_t count = impl_->index_->sample_count();
  for (std::size_t i = 0; i < list.ids.size(); ++i) {
    if (Raw(list.ids[i]) < count) continue;
    return Status(StatusCode::kOutOfRange, "sampler position " + std::to_string(i) + ": sample " +
                                               std::to_string(Raw(list.ids[i])) +
                                               ", the dataset has " + std::to_string(count));
  }
  return impl_->Begin([&] { return Result<std::unique_ptr<Order>>(MakeListOrder(list)); }, {sink},
                      std::nullopt, [&](NodeTiers& tiers) { return tiers.Begin(list); }, turn);
}

bool NodeJob::Stop(std::int64_t timeout_ns, std::optional<RunTurn> turn) {
  return impl_->forked() || impl_->End(timeout_ns, turn);
}

void NodeJob::Cancel() {
  if (!impl_->forked()) impl_->Cancel();
}

std::int64_t NodeJob::LeftOf(std::int64_t ns) const {
  return impl_->forked() ? ns : impl_->LeftOf(ns);
}

bool NodeJob::Help() { return impl_->Help(); }

Result<std::vector<PlannedRow>> NodeJob::Explain(Position position, std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  HEADRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Order> order,
                            impl_->planner_->MakeOrder(position));
  const std::optional<Step> step = order->Next();
  if (!step.has_value()) return Status(StatusCode::kOutOfRange, "the plan has no such step");
  const std::uint32_t rank = impl_->options_.job.rank + lane;
  const auto is_rank = [rank](const Delivery& delivery) { return delivery.rank == rank; };
  const auto begin = std::find_if(step->deliveries.begin(), step->deliveries.end(), is_rank);
  const auto end = std::find_if_not(begin, step->deliveries.end(), is_rank);
  return impl_->Describe(
      std::span(begin, end),
      Impl::Place{.position = position,
                  .lane = lane,
                  .first_use = static_cast<std::size_t>(begin - step->deliveries.begin())});
}

Result<std::vector<PlannedRow>> NodeJob::ExplainRows(std::span<const SampleId> samples) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  std::vector<Delivery> deliveries;
  deliveries.reserve(samples.size());
  for (const SampleId sample : samples) {
    deliveries.push_back({.sample = sample, .slot = static_cast<std::uint32_t>(deliveries.size())});
  }
  return impl_->Describe(deliveries);
}

Result<LoaderStats> NodeJob::stats(std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->stats(lane);
}

Result<std::vector<StepTime>> NodeJob::step_times() const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->step_times();
}

// Nothing in a forked child: its tiers' locks may be held by threads that it does not have.
std::vector<NamedTierStats> NodeJob::tier_stats() const {
  if (impl_->forked()) return {};
  return impl_->tier_stats();
}

std::vector<PreprocessModel::Row> NodeJob::learned() const {
  if (impl_->forked()) return {};
  return impl_->schedule_->learned();
}

}  // namespace headrace
