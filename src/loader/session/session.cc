#include "loader/session/session.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "engine/engine.h"
#include "index/homes/homes.h"
#include "loader/config/resolved_order.h"
#include "loader/ending/reaper.h"
#include "loader/ending/run_lifecycle.h"
#include "loader/machine/thread_executor.h"
#include "loader/session/engine_run.h"
#include "loader/session/lane_schedule.h"
#include "loader/session/near_lanes.h"
#include "loader/session/open_store.h"
#include "loader/session/other_nodes.h"
#include "loader/session/owed_wait.h"
#include "loader/session/owner_process.h"
#include "loader/session/session_reports.h"
#include "loader/session/session_samples.h"
#include "loader/session/session_tiers.h"
#include "plan/left_out.h"

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

// Of an order whose nodes exchange samples: what this node is to read must be here.
Status CheckHome(const Index& index, const OrderOptions& job) {
  if (!job.exchange) return Status();
  HEADRACE_ASSIGN_OR_RETURN(const Homes homes, HomesOf(index));
  if (homes.count == 1) return Status();
  const std::vector<Result<bool>> here = LookAtHomes(index, homes);
  const Result<bool>& own = here.at(job.node());
  HEADRACE_RETURN_IF_ERROR(own.status());
  if (own.value()) return Status();
  return FailedPrecondition(
      "reading home {} of {} of a dataset: folder {}/{} is not here, and this is node {}, which "
      "alone reads it; copy it here, or start the nodes in the order of their homes",
      job.node(), homes.count, index.root(), HomeFolder(job.node()), job.node());
}

}  // namespace

// What a session owns.
struct Session::Impl {
  // Resources whose creation can fail.
  struct Parts {
    std::optional<ExpectedInflation> inflation;
    std::shared_ptr<CellPool> residents;
    std::unique_ptr<SessionTiers> tiers;
    NearLanes near;
    OpenedStore store;
    std::unique_ptr<LaneSchedule> schedule;
    std::shared_ptr<OtherNodes> nodes;
  };

  // What a run needs to start.
  struct NextRun {
    std::unique_ptr<Order> order;
    std::shared_ptr<LanePolicy> policy;
    std::unique_ptr<TierCache> tiers;
  };
  using MakeTiers = std::function<Result<std::unique_ptr<TierCache>>(SessionTiers&)>;
  using MakeOrder = std::function<Result<std::unique_ptr<Order>>()>;

  Impl(std::shared_ptr<const Index> index_in, LoaderConfig config_in, Parts parts)
      : index(std::move(index_in)),
        config(std::move(config_in)),
        facts{.schema = config.schema,
              .steps_per_epoch = config.steps_per_epoch,
              .order_parameters = config.order->parameters(),
              .order_origins = config.order->origins(),
              .inflation = parts.inflation},
        schedule(std::move(parts.schedule)),
        residents(std::move(parts.residents)),
        pinned_blocks(config.budget.pinned_bytes == 0
                          ? nullptr
                          : std::make_shared<PinnedBlocks>(config.budget.pinned_bytes)),
        scratch(MakeScratch(config)),
        nodes(std::move(parts.nodes)),
        tiers(std::move(parts.tiers)),
        parcel_memory(config.options.job.exchange && nodes != nullptr
                          ? BufferPool::Make(config.parcel_bytes)
                          : nullptr),
        sent_memory(parcel_memory == nullptr ? nullptr : BufferPool::Make(config.parcel_bytes)),
        near(std::move(parts.near)),
        store(std::move(parts.store)),
        reports({.index = index,
                 .config = &config,
                 .tiers = tiers.get(),
                 .store = &store.store(),
                 .schedule = schedule.get(),
                 .nodes = nodes.get(),
                 .process = &process}) {
    if (nodes == nullptr) return;
    given_samples = std::make_unique<SessionSamples>(tiers.get());
    nodes->Give(given_samples.get());
    if (parcel_memory == nullptr) return;
    owed = std::make_unique<OwedWait>(
        clock, *nodes, [this] { return given_samples->Owes() || sent_memory->in_use(); });
  }
  ~Impl() {
    if (given_samples != nullptr) given_samples->End();
    runs.Close();
    if (given_samples != nullptr) nodes->Give(nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Calls `make_order` and `make_tiers` once no run uses the tiers. `start`: the position in the
  // session's own order; nothing for another order.
  Result<std::shared_ptr<SessionRun>> Begin(const MakeOrder& make_order,
                                            const std::vector<BatchSink*>& sinks,
                                            std::optional<Position> start,
                                            const MakeTiers& make_tiers,
                                            std::optional<RunTurn> turn) {
    static_cast<void>(GiveWhatIsOwed(-1));
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<EngineRun> run,
                              runs.Begin(
                                  turn.has_value() ? *turn : runs.TakeTurn(),
                                  [&] { return Plan(make_order, start, make_tiers); },
                                  [&](NextRun next) { return StartRun(std::move(next), sinks); }));
    return std::shared_ptr<SessionRun>(std::move(run));
  }

  // Before a run ends: other nodes may still have to take samples for steps that the ranks of this
  // one have taken, and nobody else has them. Waits up to `timeout_ns` (negative: as long as they
  // may). `turn`: means runs that are not newer. Returns whether the run may end.
  bool GiveWhatIsOwed(std::int64_t timeout_ns, std::optional<RunTurn> turn = std::nullopt) {
    if (owed == nullptr) return true;
    if (!turn.has_value()) return owed->Wait(timeout_ns);
    return owed->Wait(timeout_ns, [this, turn] { return runs.HasBegunAfter(*turn); });
  }

  Result<NextRun> Plan(const MakeOrder& make_order, std::optional<Position> start,
                       const MakeTiers& make_tiers) {
    NextRun next;
    HEADRACE_ASSIGN_OR_RETURN(next.order, make_order());
    if (start.has_value()) {
      HEADRACE_ASSIGN_OR_RETURN(next.policy, schedule->Begin(*start));
    } else {
      HEADRACE_RETURN_IF_ERROR(schedule->BeginList());
    }
    if (parcel_memory != nullptr && start.has_value()) {
      given_samples->Expect(nodes->round() + 1);
      const Status agreed =
          nodes->Agree({.start = *start, .capacity_units = {}, .held = {}}).status();
      if (!agreed.ok()) given_samples->End();
      HEADRACE_RETURN_IF_ERROR(agreed);
    }
    if (tiers != nullptr) {
      if (given_samples != nullptr) given_samples->Expect();
      Result<std::unique_ptr<TierCache>> made = make_tiers(*tiers);
      if (given_samples != nullptr && !made.ok()) given_samples->End();
      HEADRACE_ASSIGN_OR_RETURN(next.tiers, std::move(made));
    }
    return next;
  }

  std::shared_ptr<EngineRun> StartRun(NextRun next, const std::vector<BatchSink*>& sinks) {
    const std::optional<MachineModel>& model = config.options.model;
    Engine::Parts parts{.index = index.get(),
                        .schema = config.schema,
                        .store = &store.store(),
                        .executor = &near.executor(),
                        .clock = &clock,
                        .staging = near.staging(),
                        .residents = residents,
                        .pinned_blocks = pinned_blocks,
                        .scratch = scratch,
                        .decoded_images = config.options.tiers.decoded_images,
                        .model = model ? &*model : nullptr,
                        .first_rank = config.options.job.rank,
                        .policy = next.policy.get(),
                        .observer = schedule->observer(),
                        .nodes = given_samples == nullptr ? nullptr : &nodes->source(),
                        .parcels = parcel_memory == nullptr ? nullptr : &nodes->source(),
                        .parcel_memory = parcel_memory,
                        .sent_memory = sent_memory,
                        .sent_gone = [this] { owed->Changed(); },
                        .round = parcel_memory == nullptr ? 0 : nodes->round()};
    for (std::size_t lane = 0; lane < sinks.size(); ++lane) {
      parts.lanes.push_back(near.lane(lane));
      parts.lanes.back().sink = sinks[lane];
    }
    auto run = std::make_shared<EngineRun>(
        parts, config.engine_options(), std::move(next.order), std::move(next.tiers),
        [this, number = ++run_count](std::uint32_t lane, const Batch& batch,
                                     std::int64_t taken_ns) {
          reports.OnTaken(number, lane, batch, taken_ns);
        });
    reports.Begin(run);
    if (given_samples != nullptr) given_samples->Begin(run);
    return run;
  }

  const OwnerProcess process;
  const std::shared_ptr<const Index> index;
  const LoaderConfig config;
  const SessionFacts facts;
  const std::unique_ptr<LaneSchedule> schedule;       // keeps the newest run's policy
  const std::shared_ptr<CellPool> residents;          // null: the order reads no blocks
  const std::shared_ptr<PinnedBlocks> pinned_blocks;  // null: there is no memory for them
  const std::shared_ptr<ScratchBudget> scratch;       // null: nothing decodes
  MonotonicClock clock;
  const std::shared_ptr<OtherNodes> nodes;        // null: they are not asked
  const std::unique_ptr<SessionTiers> tiers;      // null: none
  std::unique_ptr<SessionSamples> given_samples;  // null: nobody asks this node
  // Null: nodes do not send each other parcels.
  const std::shared_ptr<BufferPool> parcel_memory;
  const std::shared_ptr<BufferPool> sent_memory;  // with it
  const NearLanes near;
  OpenedStore store;
  SessionReports reports;

  std::unique_ptr<OwedWait> owed;  // with parcel_memory

  // They share memory and its hook: one at a time.
  RunLifecycle<EngineRun> runs{clock, [this](EngineRun& run) {
                                 if (given_samples != nullptr) given_samples->End();
                                 if (owed != nullptr) {
                                   nodes->StopTaking(nodes->round());
                                   owed->Changed();
                                 }
                                 reports.End(run);
                               }};
  std::uint64_t run_count = 0;  // used where a run starts
};

Result<std::unique_ptr<Session>> Session::Open(std::shared_ptr<const Index> index,
                                               LoaderConfig config, ServiceMemory service,
                                               const NumaRequest& numa,
                                               std::shared_ptr<OtherNodes> nodes) {
  const ResolvedOrder& order = *config.order;
  HEADRACE_RETURN_IF_ERROR(CheckHome(*index, config.options.job));
  Impl::Parts parts;
  HEADRACE_ASSIGN_OR_RETURN(parts.schedule, LaneSchedule::Open(*index, config));
  HEADRACE_ASSIGN_OR_RETURN(parts.inflation, order.Inflation(*index));
  if (!config.options.tiers.tiers.empty()) {
    HEADRACE_ASSIGN_OR_RETURN(
        parts.tiers, SessionTiers::Open(index, config.schema, config.options.tiers, config.order,
                                        config.options.verify,
                                        {.retained = std::move(service.tiers),
                                         .nodes = nodes.get(),
                                         .by_model = config.options.model.has_value()}));
  }
  if (parts.tiers != nullptr || config.options.job.exchange) parts.nodes = std::move(nodes);
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
                                                           .remedies = config.options.remedies,
                                                           .decoded = config.decoded,
                                                           .requests = config.requests,
                                                           .share = std::move(service.share)}));
  auto impl = std::make_unique<Impl>(std::move(index), std::move(config), std::move(parts));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  if (!impatient_) static_cast<void>(impl_->GiveWhatIsOwed(-1));
  impl_->runs.Cancel();
  const std::int64_t timeout_ns = impatient_ ? 0 : impl_->runs.LeftOf(kCloseNs);
  const bool ended = impl_->runs.End(impl_->runs.TakeTurn(), timeout_ns);
  // Closing files and writing tiers may also wait for storage.
  std::vector<std::string> folders;
  if (impl_->tiers != nullptr) folders = impl_->tiers->folders();
  DestroyWithin(std::move(impl_), ended ? kFlushNs : 0, folders);
}

const LoaderConfig& Session::config() const { return impl_->config; }
const SessionFacts& Session::facts() const { return impl_->facts; }
const Index& Session::index() const { return *impl_->index; }
const SessionReports& Session::reports() const { return impl_->reports; }
bool Session::forked() const { return impl_->process.forked(); }

RunTurn Session::TakeTurn() { return forked() ? RunTurn{} : impl_->runs.TakeTurn(); }

Result<std::shared_ptr<SessionRun>> Session::Start(Position position,
                                                   const std::vector<BatchSink*>& sinks,
                                                   std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->process.Check());
  HEADRACE_CHECK(sinks.size() == config().options.job.ranks);
  return impl_->Begin([&] { return config().order->MakeOrder(position); }, sinks, position,
                      [&](SessionTiers& tiers) {
                        const LaneSchedule& lanes = *impl_->schedule;
                        if (lanes.schedule() == nullptr) return tiers.Begin(position);
                        return tiers.Follow(position, lanes.schedule()->start(), lanes.place());
                      },
                      turn);
}

Result<std::shared_ptr<SessionRun>> Session::StartList(const ListOrderOptions& list,
                                                       BatchSink* sink,
                                                       std::optional<RunTurn> turn) {
  HEADRACE_RETURN_IF_ERROR(impl_->process.Check());
  if (!config().order->follows_lists()) {
    const auto follows = [](const OrderFactory& order) { return order.follows_lists(); };
    return InvalidArgument(
        "a list of samples in order '{}': only an order that keeps the list can follow it; use "
        "order {}",
        config().options.order.name, Orders().Names(follows));
  }
  if (config().options.job.ranks > 1) {
    return InvalidArgument(
        "a list of samples for {} ranks of a node: each rank has a sampler of its own; "
        "write Job(node=False)",
        config().options.job.ranks);
  }
  HEADRACE_RETURN_IF_ERROR(CheckList(list, index().sample_count()));
  HEADRACE_RETURN_IF_ERROR(CheckNoneLeftOut(list, config().options.order.left_out));
  return impl_->Begin([&] { return Result<std::unique_ptr<Order>>(MakeListOrder(list)); }, {sink},
                      std::nullopt, [&](SessionTiers& tiers) { return tiers.Begin(list); }, turn);
}

bool Session::Stop(std::int64_t timeout_ns, std::optional<RunTurn> turn) {
  if (!forked() && !impl_->GiveWhatIsOwed(timeout_ns, turn)) return false;
  return forked() || impl_->runs.End(turn.has_value() ? *turn : impl_->runs.TakeTurn(), timeout_ns);
}

bool Session::owes() const { return !forked() && !impl_->GiveWhatIsOwed(0); }

void Session::Cancel() {
  if (forked()) return;
  if (impl_->owed != nullptr) impl_->owed->Cancel();
  impl_->runs.Cancel();
}

std::int64_t Session::LeftOf(std::int64_t ns) const {
  return forked() ? ns : impl_->runs.LeftOf(ns);
}

bool Session::Help() { return impl_->near.executor().RunOne(); }

}  // namespace headrace
