#include "engine/engine.h"

#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "engine/batch/batch_maker.h"
#include "engine/batch/stored_fields.h"
#include "engine/blocks/outbox.h"
#include "engine/blocks/residency.h"
#include "engine/lanes/lane_queues.h"
#include "engine/lanes/lanes.h"
#include "engine/loop/loop_context.h"
#include "engine/rows/row_fetcher.h"
#include "engine/rows/rows.h"
#include "engine/tiers/entry_form.h"
#include "engine/tiers/tier_filler.h"
#include "fetch/fetcher.h"
#include "fetch/sources.h"
#include "fetch/verifier.h"

namespace headrace {
namespace {

// The lanes with what the engine has where they have nothing of their own.
std::vector<EngineLane> Completed(const EngineParts& parts) {
  std::vector<EngineLane> lanes = parts.lanes;
  for (EngineLane& lane : lanes) {
    if (lane.staging == nullptr) lane.staging = parts.staging;
    if (lane.executor == nullptr) lane.executor = parts.executor;
  }
  return lanes;
}

// Removes the reads from all deliveries: every field of the batch is in the index.
void DropReads(Step& step) {
  step.reads.clear();
  step.releases.clear();
  step.parcels.clear();
  step.reads_due = 0;
  for (Delivery& delivery : step.deliveries) delivery.block_read = kNoBlockRead;
}

// An event that completes no work in flight.
LoopEvent Call(std::function<void()> run) { return {.run = std::move(run), .completes = 0}; }

}  // namespace

// The components, and what they share.
struct Engine::Components {
  Components(const Parts& parts, const EngineOptions& of_engine, std::stop_token stop,
             Inbox<LoopEvent>& inbox, TierCache* cache,
             std::function<std::optional<Status>(bool)> check)
      : options(of_engine),
        fields(*parts.index, parts.schema),
        entry_form(fields, parts.decoded_images, parts.scratch),
        verifier(*parts.index, options.verify),
        batch_maker(*parts.index, parts.schema, *parts.store),
        storage(*parts.store),
        fetcher({.sources = {.storage = storage,
                             .entries = entries,
                             .nodes = parts.nodes,
                             .parcels = parts.parcels},
                 .in_flight_max = options.reads_in_flight_max,
                 .stop = stop,
                 .ended =
                     [&inbox](Fetch& fetch, Result<std::span<std::byte>> data) {
                       inbox.Post({.fetch = &fetch, .data = std::move(data)});
                     },
                 .beginning = [&inbox](std::uint64_t reads) { inbox.BeginWork(reads); }}),
        parcels(parts.parcels == nullptr ? nullptr
                                         : new ParcelReads{*parts.parcel_memory, parts.round, {}}),
        loop{.options = options,
             .inbox = inbox,
             .executor = *parts.executor,
             .clock = *parts.clock,
             .fetcher = fetcher,
             .storage = storage,
             .asks_nodes = parts.nodes != nullptr,
             .parcels = parcels.get(),
             .staging = *parts.staging,
             .fields = fields,
             .entry_form = entry_form,
             .verifier = verifier,
             .stop = std::move(stop)},
        queues(Completed(parts), parts.policy),
        row_fetcher(loop, queues, parts.residents, rows),
        rows(loop, queues,
             {.residents = parts.residents, .scratch = parts.scratch, .observer = parts.observer},
             row_fetcher),
        filler(cache == nullptr
                   ? nullptr
                   : std::make_unique<TierFiller>(loop, *cache, parts.model, row_fetcher)),
        blocks(loop, {.residents = parts.residents, .pinned_blocks = parts.pinned_blocks},
               filler.get(), row_fetcher),
        outbox(loop, parts.residents, parts.sent_memory, blocks),
        lanes(loop,
              {.first_rank = parts.first_rank,
               .sources = cache != nullptr,
               .have_come = [this](std::uint64_t number) { return blocks.HaveCome(number); },
               .check = std::move(check),
               .wait = parcels == nullptr ? nullptr : &parcels->wait},
              parts.lanes, batch_maker) {
    row_fetcher.Connect(filler.get(), &blocks);
    blocks.Connect(&outbox);
  }

  const EngineOptions options;
  const StoredFields fields;
  const EntryForm entry_form;
  const Verifier verifier;
  const BatchMaker batch_maker;
  StorageSource storage;
  TierSource entries;
  Fetcher fetcher;
  const std::unique_ptr<ParcelReads> parcels;  // null: other nodes send nothing
  LoopContext loop;
  LaneQueues queues;
  RowFetcher row_fetcher;
  Rows rows;
  const std::unique_ptr<TierFiller> filler;  // null: no tiers
  Residency blocks;
  Outbox outbox;
  Lanes lanes;
};

Engine::Engine(const Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
               std::unique_ptr<TierCache> tiers)
    : parts_(parts),
      inbox_(std::make_unique<Inbox<LoopEvent>>(
          *parts.executor, [this](std::span<LoopEvent> events) { return HandleAll(events); })),
      order_(std::move(order)),
      tiers_(StoredFields(*parts.index, parts.schema).empty() ? nullptr : std::move(tiers)),
      components_(std::make_unique<Components>(parts_, options, stop_.get_token(), *inbox_,
                                               tiers_.get(), [this](bool ends_epoch) {
                                                 state_mutex_.AssertHeld();
                                                 return CheckData(ends_epoch);
                                               })) {
  HEADRACE_CHECK(options.batches_max > 0 && options.reads_in_flight_max > 0);
  HEADRACE_CHECK(!parts.lanes.empty() && parts.lanes.size() < kDeadlinesOfStep);
  for (const EngineLane& lane : parts.lanes) {
    lane.batch_memory->SetReleaseHook(  // Advance() looks at the memory itself.
        [this] { inbox_->PostLater({.completes = 0}); });
  }
  if (parts.sent_memory != nullptr) {
    parts.sent_memory->SetReleaseHook([this] {
      inbox_->PostLater({.completes = 0});
      if (parts_.sent_gone) parts_.sent_gone();
    });
  }
}

Engine::~Engine() {
  MutexLock lock(state_mutex_);
  HEADRACE_CHECK(closed_);
}

void Engine::Start() {
  inbox_->PostLater(Call([this] {
    state_mutex_.AssertHeld();
    started_ = true;
  }));
}

void Engine::OnTaken(std::uint32_t lane, std::optional<std::int64_t> taken_ns) {
  const std::int64_t now_ns = taken_ns.value_or(parts_.clock->NowNanos());
  ++taken_posted_;
  inbox_->PostLater(Call([this, lane, now_ns] {
    state_mutex_.AssertHeld();
    components_->lanes.OnTaken(lane, now_ns);
    --taken_posted_;
  }));
}

// Runs the loop on the consumer's thread, which has nothing better to do: the executor may be busy.
// It plans no step there: who waits for a batch may give up.
void Engine::OnWaiting(std::uint32_t lane) {
  const std::int64_t now_ns = parts_.clock->NowNanos();
  inbox_->Post(Call([this, lane, now_ns] {
    state_mutex_.AssertHeld();
    components_->lanes.OnWaiting(lane, now_ns);
  }));
}

void Engine::Leave(std::uint32_t lane) {
  {
    MutexLock lock(state_mutex_);
    components_->lanes.Leave(lane);
  }
  inbox_->PostLater({.completes = 0});  // Advance() goes on without the lane.
}

void Engine::Stop() {
  Unanswered unanswered;
  {
    MutexLock lock(state_mutex_);
    components_->loop.ended = true;
    unanswered = DropQueues();
  }
  // After that: tasks that see it leave their samples undone, and only `ended` keeps these from the
  // sink.
  stop_.request_stop();
  TellEnded(unanswered);  // Without the lock: they may ask this engine for something.
}

bool Engine::Close(std::int64_t timeout_ns) {
  Stop();
  {
    MutexLock lock(state_mutex_);
    // Once: after that the memory, and its hook, may be another engine's.
    if (std::exchange(hooked_, false)) {
      for (const EngineLane& lane : parts_.lanes) lane.batch_memory->SetReleaseHook(nullptr);
      if (parts_.sent_memory != nullptr) parts_.sent_memory->SetReleaseHook(nullptr);
    }
  }
  if (!inbox_->WaitUntilIdle(*parts_.clock, timeout_ns)) return false;
  MutexLock lock(state_mutex_);
  closed_ = true;
  components_->outbox.ReleaseAll();
  components_->blocks.ReleaseAll();
  components_->lanes.VisitWork([this](StepWork& work) {
    state_mutex_.AssertHeld();
    components_->row_fetcher.ReleaseCells(work);
  });
  return true;
}

void Engine::Bring(SampleId sample, std::uint64_t deadline, TakenEntry done) {
  inbox_->PostLater(Call([this, sample, deadline, done = std::move(done)]() mutable {
    state_mutex_.AssertHeld();
    if (components_->filler == nullptr) {
      done(NotFound("bringing sample {} into a tier: the run has no tiers", Raw(sample)));
    } else {
      components_->filler->Bring(sample, deadline, std::move(done));
    }
  }));
}

void Engine::TakeParcel(NodeNumber to, const ParcelPart& part, TakenParcel done) {
  inbox_->PostLater(Call([this, to, part, done = std::move(done)]() mutable {
    state_mutex_.AssertHeld();
    components_->outbox.Take(to, part, std::move(done));
  }));
}

bool Engine::owes() const {
  MutexLock lock(state_mutex_);
  return !components_->loop.ended &&
         components_->outbox.Owes(components_->lanes.taken() + taken_posted_);
}

bool Engine::quiescent() const { return inbox_->idle(); }

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    MutexLock lock(state_mutex_);
    stats.blocks = components_->blocks.counts();
    stats.reads = components_->fetcher.stats().reads;
    stats.read_bytes = components_->fetcher.stats().read_bytes;
    stats.reads_in_flight = components_->fetcher.stats().in_flight;
    LanesStats lanes = components_->lanes.stats();
    stats.substituted = lanes.substituted;
    stats.substitutions = std::move(lanes.substitutions);
    stats.lanes = std::move(lanes.lanes);
    components_->queues.AddTo(stats.lanes);
    if (components_->filler != nullptr) stats.tiers = components_->filler->counts();
  }
  stats.staging = parts_.staging->stats();
  std::set<const BufferPool*> counted = {nullptr, parts_.staging.get()};
  for (const auto& memory : {parts_.parcel_memory, parts_.sent_memory}) {
    if (memory != nullptr) stats.staging += memory->stats();
  }
  for (std::size_t lane = 0; lane < parts_.lanes.size(); ++lane) {
    const EngineLane& parts = parts_.lanes[lane];
    if (counted.insert(parts.staging.get()).second) stats.staging += parts.staging->stats();
    stats.lanes[lane].batch = parts.batch_memory->stats();
    stats.batch += stats.lanes[lane].batch;
    stats.steps_in_work += stats.lanes[lane].steps_in_work;
  }
  if (parts_.residents != nullptr) stats.resident = parts_.residents->stats();
  if (parts_.pinned_blocks != nullptr) stats.pinned = parts_.pinned_blocks->stats();
  if (parts_.scratch != nullptr) stats.scratch = parts_.scratch->stats();
  return stats;
}

// Runs on one thread at a time. Returns how much of what was in flight has come back.
std::uint64_t Engine::HandleAll(std::span<LoopEvent> events) {
  std::uint64_t completions = 0;
  MutexLock lock(state_mutex_);
  Tick();
  for (LoopEvent& event : events) {
    completions += event.completes;
    if (event.fetch != nullptr) {
      components_->fetcher.Finish(*event.fetch);
      event.fetch->client->OnFetched(*event.fetch, std::move(event.data));
    } else if (event.run) {
      event.run();
    }
  }
  Advance();
  components_->lanes.SetStallCauses();
  return completions;
}

void Engine::Advance() {
  if (!started_) return;
  Components& components = *components_;
  const bool& ended = components.loop.ended;
  HandOver();
  components.outbox.GiveWaiting();
  while (!ended && AdmitStep()) {
  }
  if (!ended) components.row_fetcher.IssueReads();
  // Reads of single samples first: they are for steps that are due, and stand in for samples lost.
  if (components.queues.nothing_to_read()) {
    if (const Status status = components.blocks.IssueReads(); !status.ok()) End(status);
  }
  // Of stand-ins where no block read can bring a sample.
  if (!ended) components.row_fetcher.IssueReads();
  const bool idle = components.queues.nothing_to_read() && !components.blocks.has_queued();
  if (!ended && components.filler != nullptr) components.filler->IssueReads(idle);
  HandOver();  // Steps without rows, and steps that failed before a read.
}

// A step that begins an epoch may take seconds: whoever waits for a batch, asks for statistics or
// ends the run does not wait for it. The loop runs on one thread at a time, so nobody else plans.
std::optional<Step> Engine::PlanStep() {
  state_mutex_.Unlock();
  std::optional<Step> step = order_->Next();
  if (step.has_value() && tiers_ != nullptr) tiers_->PlanStep();
  state_mutex_.Lock();
  Tick();
  return step;
}

// As Lanes wants it of each batch. At the end of an epoch the files of the data may be on storage
// that does not answer, so nobody waits for that, as for PlanStep().
std::optional<Status> Engine::CheckData(bool ends_epoch) {
  Status status = parts_.index->CheckIntact();
  if (!status.ok() || !ends_epoch || !parts_.store->HasOpen()) return status;
  if (!inbox_->by_executor()) {
    inbox_->HandOver({.completes = 0});
    return std::nullopt;
  }
  state_mutex_.Unlock();
  status = parts_.store->CheckOpen();
  state_mutex_.Lock();
  Tick();
  if (components_->loop.ended) return std::nullopt;
  return status;
}

void Engine::Tick() {
  components_->loop.now_ns = parts_.clock->NowNanos();
  components_->lanes.AccountStalls();
}

bool Engine::AdmitStep() {
  Components& components = *components_;
  if (!components.lanes.has_room()) return false;
  if (!components.lanes.has_next()) {
    if (plan_ended_) return false;
    if (!inbox_->by_executor()) {
      inbox_->HandOver({.completes = 0});
      return false;
    }
    std::optional<Step> step = PlanStep();
    if (!step.has_value()) {
      plan_ended_ = true;
      return false;
    }
    if (components.fields.empty()) DropReads(*step);
    components.lanes.SetNext(*std::move(step));
    // Stop(), or the last lane left.
    if (components.loop.ended || !components.lanes.has_room()) return false;
  }
  const Result<bool> complete = components.lanes.MakeBatches();
  if (!complete.ok()) End(complete.status());
  if (!complete.ok() || !complete.value()) return false;
  ++components.loop.sequence;
  auto [step, works] = components.lanes.Admit();
  components.blocks.Queue(std::move(step.reads), step.releases);
  components.outbox.Queue(std::move(step.parcels));
  if (tiers_ != nullptr) {
    for (StepWork* const work : works) components.row_fetcher.FindInTiers(*work);
    tiers_->Advance(step);
    components.filler->IssueMoves();  // Before the next step looks for what is on its way.
  }
  if (parts_.policy != nullptr) SplitShares(step, works);
  for (StepWork* const work : works) components.row_fetcher.Plan(*work);
  return true;
}

void Engine::SplitShares(const Step& step, std::span<StepWork* const> works) {
  const Position at{.epoch = step.epoch, .step = step.step};
  if (const Status status = components_->queues.Split(at, components_->lanes.Loads(works));
      !status.ok()) {
    // The steps before come first.
    for (StepWork* const work : works) work->error.emplace(0, status);
  }
  for (std::uint32_t lane = 0; lane < parts_.lanes.size(); ++lane) {
    components_->rows.StartDecodes(lane);
  }
}

void Engine::HandOver() {
  if (components_->loop.ended) return;
  const Status* const end = components_->lanes.HandOver(plan_ended_);
  // Other nodes may not have come as far.
  if (end != nullptr && (!end->ok() || !components_->outbox.Owes())) End(*end);
}

void Engine::End(const Status& status) {
  components_->loop.ended = true;
  stop_.request_stop();
  const Unanswered unanswered = DropQueues();
  components_->lanes.End(status);
  TellEnded(unanswered);
}

Engine::Unanswered Engine::DropQueues() {
  Unanswered unanswered;
  components_->queues.Drop();
  components_->blocks.DropQueue();
  unanswered.parcels = components_->outbox.Drop();
  components_->rows.DropQueue();
  if (components_->filler != nullptr) unanswered.entries = components_->filler->DropBrought();
  return unanswered;
}

void Engine::TellEnded(const Unanswered& unanswered) {
  const Status ended(StatusCode::kCancelled, "the run has ended");
  for (const TakenParcel& done : unanswered.parcels) done(ended);
  for (const TakenEntry& done : unanswered.entries) done(ended);
}

}  // namespace headrace
