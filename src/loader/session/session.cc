#include "loader/session/session.h"

#include <functional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/process_id.h"
#include "engine/engine.h"
#include "loader/config/resolved_order.h"
#include "loader/ending/keeper.h"
#include "loader/ending/run_lifecycle.h"
#include "loader/machine/machine.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/engine_run.h"
#include "loader/session/lane_schedule.h"
#include "loader/session/near_lanes.h"
#include "loader/session/open_store.h"
#include "loader/session/row_sources.h"
#include "loader/session/run_totals.h"
#include "loader/session/session_tiers.h"

namespace headrace {
namespace {

// Decoding yields to the training loop when both want a core.
constexpr int kDecodeNice = 5;

// The executor's threads may decode at once, and each rank's consumer, which helps. Null if nothing
// decodes.
std::shared_ptr<ScratchBudget> MakeScratch(const LoaderConfig& config) {
  if (config.budget.scratch_bytes == 0) return nullptr;
  return ScratchBudget::Make(
      {.capacity_bytes = config.budget.scratch_bytes,
       .threads = static_cast<std::uint32_t>(config.options.threads) + config.options.job.ranks,
       .memory_bytes_per_byte = config.scratch_share});
}

}  // namespace

class Session::Impl {
 public:
  // Resources whose creation can fail.
  struct Parts {
    std::optional<ExpectedInflation> inflation;
    std::shared_ptr<CellPool> residents;
    std::unique_ptr<SessionTiers> tiers;
    NearLanes near;
    OpenedStore store;
    std::unique_ptr<LaneSchedule> schedule;
  };

  Impl(std::shared_ptr<const Index> index, LoaderConfig config, Parts parts)
      : index_(std::move(index)),
        config_(std::move(config)),
        inflation_(parts.inflation),
        schedule_(std::move(parts.schedule)),
        device_read_bytes_(DeviceReadBytes()),
        residents_(std::move(parts.residents)),
        kept_blocks_(config_.budget.pinned_bytes == 0
                         ? nullptr
                         : std::make_shared<KeptBlocks>(config_.budget.pinned_bytes)),
        scratch_(MakeScratch(config_)),
        tiers_(std::move(parts.tiers)),
        near_(std::move(parts.near)),
        store_(std::move(parts.store)),
        sources_(index_, config_.schema, config_.order, tiers_.get()),
        totals_(config_.options.job.ranks) {}

  ~Impl() { runs_.Close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status CheckProcess() const {
    if (!forked()) return Status();
    return FailedPrecondition(
        "a loader made in process {} is used in its forked child {}: threads do not survive a "
        "fork; make the loader in the child",
        pid_, ProcessId());
  }
  [[nodiscard]] bool forked() const { return ProcessId() != pid_; }

  using MakeTiers = std::function<Result<std::unique_ptr<TierCache>>(SessionTiers&)>;

  using MakeOrder = std::function<Result<std::unique_ptr<Order>>()>;

  // Calls `make_order` and `make_tiers` once no run uses the tiers. `start`: the position in the
  // job's own order; nothing for another order.
  Result<std::shared_ptr<SessionRun>> Begin(const MakeOrder& make_order,
                                            const std::vector<BatchSink*>& sinks,
                                            std::optional<Position> start,
                                            const MakeTiers& make_tiers,
                                            std::optional<RunTurn> turn) {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<EngineRun> run,
                              runs_.Begin(
                                  turn.has_value() ? *turn : TakeTurn(),
                                  [&] { return Plan(make_order, start, make_tiers); },
                                  [&](NextRun next) { return StartRun(std::move(next), sinks); }));
    return std::shared_ptr<SessionRun>(std::move(run));
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

  [[nodiscard]] std::vector<NamedTierStats> tier_stats() const {
    std::vector<NamedTierStats> all;
    if (tiers_ == nullptr) return all;
    for (const std::unique_ptr<Tier>& tier : tiers_->tiers()) {
      all.push_back({.name = tier->name(), .stats = tier->stats()});
    }
    return all;
  }

  [[nodiscard]] std::vector<StepTime> step_times() const { return totals_.step_times(); }
  [[nodiscard]] const RowSources& sources() const { return sources_; }

  [[nodiscard]] LoaderStats stats(std::uint32_t lane) const {
    LoaderStats stats;
    stats.lane = lane;
    totals_.AddTo(stats);
    stats.tiers = tier_stats();
    stats.store = store_.store().stats();
    stats.schedule = schedule_->stats();
    stats.budget = config_.budget;
    stats.threads = config_.options.threads;
    stats.cores = UsableCores();
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
    const std::optional<MachineModel>& model = config_.options.model;
    Engine::Parts parts{.index = index_.get(),
                        .schema = config_.schema,
                        .store = &store_.store(),
                        .executor = &near_.executor(),
                        .clock = &clock_,
                        .staging = near_.staging(),
                        .residents = residents_,
                        .kept_blocks = kept_blocks_,
                        .scratch = scratch_,
                        .model = model ? &*model : nullptr,
                        .first_rank = config_.options.job.rank,
                        .policy = next.policy.get(),
                        .observer = schedule_->observer()};
    for (std::size_t lane = 0; lane < sinks.size(); ++lane) {
      parts.lanes.push_back(near_.lane(lane));
      parts.lanes.back().sink = sinks[lane];
    }
    auto run = std::make_shared<EngineRun>(
        parts, config_.engine_options(), std::move(next.order), std::move(next.tiers),
        [this, number = ++run_count_](std::uint32_t lane, const Batch& batch,
                                      std::int64_t taken_ns) {
          totals_.OnTaken(number, lane, batch, taken_ns);
          sources_.OnTaken(lane, batch);
        });
    totals_.Begin(run);
    return run;
  }

  const std::shared_ptr<const Index> index_;
  const LoaderConfig config_;
  const std::optional<ExpectedInflation> inflation_;
  const std::unique_ptr<LaneSchedule> schedule_;  // keeps the newest run's policy

 private:
  const pid_t pid_ = ProcessId();
  const std::int64_t device_read_bytes_;           // when the loader was opened
  const std::shared_ptr<CellPool> residents_;      // null: the order reads no blocks
  const std::shared_ptr<KeptBlocks> kept_blocks_;  // null: there is no memory for them
  const std::shared_ptr<ScratchBudget> scratch_;   // null: nothing decodes
  MonotonicClock clock_;
  const std::unique_ptr<SessionTiers> tiers_;  // null: none
  const NearLanes near_;
  OpenedStore store_;
  RowSources sources_;
  RunTotals totals_;

  // They share memory and its hook: one at a time.
  RunLifecycle<EngineRun> runs_{clock_, [this](EngineRun& run) { totals_.End(run); }};
  std::uint64_t run_count_ = 0;  // used where a run starts
};

Result<std::unique_ptr<Session>> Session::Open(std::shared_ptr<const Index> index,
                                               LoaderConfig config, std::shared_ptr<KeptTiers> kept,
                                               const NumaRequest& numa) {
  const ResolvedOrder& order = *config.order;
  Impl::Parts parts;
  HEADRACE_ASSIGN_OR_RETURN(parts.schedule, LaneSchedule::Open(*index, config));
  HEADRACE_ASSIGN_OR_RETURN(parts.inflation, order.Inflation(*index));
  if (!config.options.tiers.tiers.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(
        parts.tiers, SessionTiers::Open(index, config.schema, config.options.tiers, config.order,
                                        config.options.verify, std::move(kept)));
  }
  if (order.reads_blocks()) {
    HEADRACE_ASSIGN_OR_RETURN(parts.residents,
                              CellPool::Make(order.resident_units(), order.unit_bytes()));
  }
  HEADRACE_ASSIGN_OR_RETURN(parts.near,
                            NearLanes::Make({.lanes = config.options.job.ranks,
                                             .threads = config.options.threads,
                                             .nice = kDecodeNice,
                                             .staging_bytes = config.budget.staging_bytes,
                                             .batch_bytes = config.budget.batch_bytes,
                                             .shared_batches = config.options.shared_batches},
                                            numa));
  HEADRACE_ASSIGN_OR_RETURN(parts.store, OpenStore(index, {.io = config.options.io,
                                                           .remedies = config.options.remedies}));
  auto impl = std::make_unique<Impl>(std::move(index), std::move(config), std::move(parts));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  impl_->Cancel();
  const bool ended = impl_->End(impatient_ ? 0 : impl_->LeftOf(kCloseNs));
  // Closing files and writing tiers may also wait for storage.
  const std::vector<std::string> folders = impl_->folders();
  DestroyWithin(std::move(impl_), ended ? kFlushNs : 0, folders);
}

const LoaderConfig& Session::config() const { return impl_->config_; }
std::uint32_t Session::lanes() const { return config().options.job.ranks; }
std::span<const BatchField> Session::schema() const { return config().schema; }
std::uint64_t Session::steps_per_epoch() const { return config().steps_per_epoch; }
const Index& Session::index() const { return *impl_->index_; }
OrderParameters Session::order_parameters() const { return config().order->parameters(); }
OrderParameters Session::order_origins() const { return config().order->origins(); }
const std::optional<ExpectedInflation>& Session::expected_inflation() const {
  return impl_->inflation_;
}
bool Session::forked() const { return impl_->forked(); }

RunTurn Session::TakeTurn() { return impl_->forked() ? RunTurn{} : impl_->TakeTurn(); }

Result<std::shared_ptr<SessionRun>> Session::Start(Position position,
                                                   const std::vector<BatchSink*>& sinks,
                                                   std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  HEADRACE_CHECK(sinks.size() == lanes());
  return impl_->Begin([&] { return config().order->MakeOrder(position); }, sinks, position,
                      [&](SessionTiers& tiers) {
                        const LaneSchedule& schedule = *impl_->schedule_;
                        if (schedule.file().bytes.empty()) return tiers.Begin(position);
                        return tiers.Follow(position, schedule.file_start(), schedule.file(),
                                            schedule.verdict());
                      },
                      turn);
}

Result<std::shared_ptr<SessionRun>> Session::StartList(const ListOrderOptions& list,
                                                       BatchSink* sink,
                                                       std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  if (!config().order->follows_lists()) {
    const auto follows = [](const OrderFactory& order) { return order.follows_lists(); };
    return InvalidArgument(
        "a list of samples in order '{}': only an order that keeps the list can follow it; use "
        "order {}",
        config().options.order.name, Orders().Names(follows));
  }
  if (lanes() > 1) {
    return InvalidArgument(
        "a list of samples for {} ranks of a node: each rank has a sampler of its own; leave "
        "node_process= out",
        lanes());
  }
  HEADRACE_RETURN_IF_ERROR(CheckList(list, index().sample_count()));
  return impl_->Begin([&] { return Result<std::unique_ptr<Order>>(MakeListOrder(list)); }, {sink},
                      std::nullopt, [&](SessionTiers& tiers) { return tiers.Begin(list); }, turn);
}

bool Session::Stop(std::int64_t timeout_ns, std::optional<RunTurn> turn) {
  return impl_->forked() || impl_->End(timeout_ns, turn);
}

void Session::Cancel() {
  if (!impl_->forked()) impl_->Cancel();
}

std::int64_t Session::LeftOf(std::int64_t ns) const {
  return impl_->forked() ? ns : impl_->LeftOf(ns);
}

bool Session::Help() { return impl_->Help(); }

Result<std::vector<PlannedRow>> Session::Explain(Position position, std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->sources().OfStep(position, lane);
}

Result<std::vector<PlannedRow>> Session::ExplainRows(std::span<const SampleId> samples) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->sources().OfSamples(samples);
}

Result<LoaderStats> Session::stats(std::uint32_t lane) const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->stats(lane);
}

Result<std::vector<StepTime>> Session::step_times() const {
  HEADRACE_RETURN_IF_ERROR(impl_->CheckProcess());
  return impl_->step_times();
}

// Nothing in a forked child: its tiers' locks may be held by threads that it does not have.
std::vector<NamedTierStats> Session::tier_stats() const {
  if (impl_->forked()) return {};
  return impl_->tier_stats();
}

std::vector<PreprocessModel::Row> Session::learned() const {
  if (impl_->forked()) return {};
  return impl_->schedule_->learned();
}

}  // namespace headrace
