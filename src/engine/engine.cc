#include "engine/engine.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "engine/engine_work.h"

namespace headrace {
namespace {

std::vector<std::size_t> StoredFields(std::span<const BatchField> schema) {
  std::vector<std::size_t> stored;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (!schema[i].is_inline()) stored.push_back(i);
  }
  return stored;
}

}  // namespace

// Reads that have ended go back to what they are for. The loop calls these, under its lock.
struct Engine::RowReads final : FetchClient {
  explicit RowReads(Engine& of) : engine(of) {}
  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override {
    engine.state_mutex_.AssertHeld();
    auto& unit = static_cast<ReadUnit&>(fetch);
    --unit.work->lane->reads_in_flight;
    engine.OnRead(unit, std::move(data));
  }
  Engine& engine;
};

struct Engine::BlockReads final : FetchClient {
  explicit BlockReads(Engine& of) : engine(of) {}
  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override {
    engine.state_mutex_.AssertHeld();
    auto& unit = static_cast<BlockUnit&>(fetch);
    unit.reading = false;
    engine.OnBlockRead(unit, std::move(data));
  }
  Engine& engine;
};

struct Engine::FillReads final : FetchClient {
  explicit FillReads(Engine& of) : engine(of) {}
  void OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) override {
    engine.state_mutex_.AssertHeld();
    engine.OnFillRead(static_cast<FillRead&>(fetch), std::move(data));
  }
  Engine& engine;
};

Engine::Engine(const Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
               std::unique_ptr<TierCache> tiers)
    : parts_(parts),
      options_(options),
      stored_fields_(StoredFields(parts.schema)),
      verifier_(*parts.index, options.verify),
      decoder_(*parts.index, parts.schema, parts.residents.get(), verifier_),
      batch_maker_(*parts.index, parts.schema, *parts.store),
      inbox_(std::make_unique<Inbox<Event>>(
          *parts.executor, [this](std::span<Event> events) { return HandleAll(events); })),
      storage_(*parts.store),
      fetcher_({.in_flight_max = options.reads_in_flight_max,
                .stop = stop_.get_token(),
                .ended =
                    [this](Fetch& fetch, Result<std::span<std::byte>> data) {
                      inbox_->Post({.kind = Event::Kind::kFetched,
                                    .fetch = &fetch,
                                    .data = std::move(data)});
                    },
                .beginning = [this](std::uint64_t reads) { inbox_->BeginWork(reads); }}),
      row_reads_(std::make_unique<RowReads>(*this)),
      block_reads_(std::make_unique<BlockReads>(*this)),
      fill_reads_(std::make_unique<FillReads>(*this)),
      order_(std::move(order)),
      tiers_(stored_fields_.empty() ? nullptr : std::move(tiers)) {
  if (tiers_ != nullptr) stats_.tiers.uses.resize(tiers_->tiers().size());
  HEADRACE_CHECK(options.batches_max > 0 && options.reads_in_flight_max > 0);
  HEADRACE_CHECK(!parts.lanes.empty() && parts.lanes.size() < kDeadlinesOfStep);
  if (parts.policy != nullptr) shares_.resize(parts.lanes.size());
  for (const EngineLane& each : parts.lanes) {
    auto lane = std::make_unique<Lane>();
    lane->number = static_cast<std::uint32_t>(lanes_.size());
    lane->parts = each;
    if (each.staging == nullptr) lane->parts.staging = parts.staging;
    if (each.executor == nullptr) lane->parts.executor = parts.executor;
    lanes_.push_back(std::move(lane));
    each.batch_memory->SetReleaseHook(
        [this] { inbox_->PostLater({.kind = Event::Kind::kReleased}); });
  }
}

Engine::~Engine() {
  MutexLock lock(state_mutex_);
  HEADRACE_CHECK(closed_);
}

void Engine::Start() { inbox_->PostLater({.kind = Event::Kind::kStart}); }

void Engine::OnTaken(std::uint32_t lane, std::optional<std::int64_t> taken_ns) {
  inbox_->PostLater({.kind = Event::Kind::kTaken,
                     .time_ns = taken_ns.value_or(parts_.clock->NowNanos()),
                     .lane = lane});
}

// Runs the machine on the consumer's thread, which has nothing better to do: the executor may be
// busy.
void Engine::OnWaiting(std::uint32_t lane) {
  inbox_->Post({.kind = Event::Kind::kWaiting, .time_ns = parts_.clock->NowNanos(), .lane = lane});
}

void Engine::Leave(std::uint32_t lane) {
  {
    MutexLock lock(state_mutex_);
    lanes_.at(lane)->ended = true;
    lanes_.at(lane)->stats.gone = true;
  }
  inbox_->PostLater({.kind = Event::Kind::kLeft, .lane = lane});
}

void Engine::Stop() {
  {
    MutexLock lock(state_mutex_);
    ended_ = true;
    DropQueues();
  }
  // Last: tasks that see it leave their samples undone, and only ended_ keeps these from the sink.
  stop_.request_stop();
}

bool Engine::Close(std::int64_t timeout_ns) {
  Stop();
  {
    MutexLock lock(state_mutex_);
    // Once: after that the memory, and its hook, may be another engine's.
    if (std::exchange(hooked_, false)) {
      for (const EngineLane& lane : parts_.lanes) lane.batch_memory->SetReleaseHook(nullptr);
    }
  }
  if (!inbox_->WaitUntilIdle(*parts_.clock, timeout_ns)) return false;
  MutexLock lock(state_mutex_);
  closed_ = true;
  ReleaseAllCells();
  return true;
}

bool Engine::quiescent() const { return inbox_->idle(); }

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    MutexLock lock(state_mutex_);
    stats = stats_;
    stats.reads = fetcher_.stats().reads;
    stats.read_bytes = fetcher_.stats().read_bytes;
    stats.reads_in_flight = fetcher_.stats().in_flight;
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      LaneStats& of_lane = stats.lanes.emplace_back(lane->stats);
      of_lane.stall_ns = lane->consumer.stall_ns();
      of_lane.ready = lane->ready;
      of_lane.steps_in_work = lane->steps.size();
      of_lane.queued_reads = lane->to_read.size();
      stats.steps_in_work += lane->steps.size();
    }
    if (tiers_ != nullptr) {
      const std::span<const std::uint64_t> planned = tiers_->planned_uses();
      stats.tiers.planned.assign(planned.begin(), planned.end());
      stats.tiers.not_kept += tiers_->moves_dropped();
    }
  }
  stats.staging = parts_.staging->stats();
  std::set<const BufferPool*> counted = {nullptr, parts_.staging.get()};
  for (const EngineLane& lane : parts_.lanes) {
    if (counted.insert(lane.staging.get()).second) stats.staging += lane.staging->stats();
  }
  for (std::size_t lane = 0; lane < parts_.lanes.size(); ++lane) {
    stats.lanes[lane].batch = parts_.lanes[lane].batch_memory->stats();
    stats.batch += stats.lanes[lane].batch;
  }
  if (parts_.residents != nullptr) stats.resident = parts_.residents->stats();
  if (parts_.pinned != nullptr) stats.pinned = parts_.pinned->stats();
  if (parts_.scratch != nullptr) stats.scratch = parts_.scratch->stats();
  return stats;
}

// Runs on one thread at a time. Returns how much of what was in flight has come back.
std::uint64_t Engine::HandleAll(std::span<Event> events) {
  std::uint64_t completions = 0;
  MutexLock lock(state_mutex_);
  now_ns_ = parts_.clock->NowNanos();
  for (const std::unique_ptr<Lane>& lane : lanes_) AccountStall(*lane, now_ns_);
  for (Event& event : events) {
    completions += event.completions();
    Handle(event);
  }
  Advance();
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->consumer.set_cause(CurrentCause(*lane));
  return completions;
}

void Engine::Handle(Event& event) {
  switch (event.kind) {
    case Event::Kind::kStart:
      started_ = true;
      return;
    case Event::Kind::kFetched:
      fetcher_.Finish();
      event.fetch->client->OnFetched(*event.fetch, std::move(event.data));
      return;
    case Event::Kind::kMissed: {  // It is read like others, before what waits.
      Lane& lane = *event.unit->work->lane;
      fetcher_.Finish();
      --lane.reads_in_flight;
      event.unit->work->issued_bytes -= event.unit->extent.range.size;
      event.unit->tried = true;
      if (!ended_) lane.to_read.push_front({event.unit});
      return;
    }
    case Event::Kind::kDecoded: {
      Lane& lane = *event.task->work->lane;
      --lane.decodes_in_flight;
      Observe(*event.task);
      OnDecoded(*event.task);
      StartDecodes(lane);
      return;
    }
    case Event::Kind::kDone:
      OnDone(*event.task);
      return;
    case Event::Kind::kCopied:
      if (std::exchange(event.block_unit->reading, false)) fetcher_.Finish();
      OnCopied(*event.block_unit);
      return;
    case Event::Kind::kKept: {
      const auto [work, slot] = event.row;
      Tier* const tier = std::exchange(work->samples[slot].keep, nullptr);
      FinishKeep(work->batch->samples[slot], tier, event.data.status());
      EndSample(*work, slot);
      return;
    }
    case Event::Kind::kFilled:
      OnFilled(*event.fill, event.data.status());
      return;
    case Event::Kind::kTaken:
      return OnTakenAt(*lanes_.at(event.lane), event.time_ns);
    case Event::Kind::kWaiting:
      return OnWaitingAt(*lanes_.at(event.lane), event.time_ns);
    case Event::Kind::kLeft:  // Advance() goes on without the lane.
    case Event::Kind::kReleased:
      return;  // Advance() looks at the memory itself.
  }
}

void Engine::Advance() {
  if (!started_) return;
  HandOver();
  while (!ended_ && AdmitStep()) {
  }
  if (!ended_ && tiers_ != nullptr) IssueMoves();
  if (!ended_) IssueReads();
  // Reads of single samples first: they are for steps that are due, and stand in for samples lost.
  if (nothing_to_read()) IssueBlockReads();
  if (!ended_) IssueReads();  // Of stand-ins for samples that no block read can bring.
  if (!ended_ && tiers_ != nullptr && nothing_to_read() && block_units_.empty()) IssueAhead();
  HandOver();  // Steps without rows, and steps that failed before a read.
}

// "epoch 0 step 3 sample 42 (n01/x.jpg)"
std::string Engine::Describe(const StepWork& work, std::uint32_t slot) const {
  const SampleId sample = work.batch->samples[slot];
  std::string text = "epoch " + std::to_string(work.plan.epoch) + " step " +
                     std::to_string(work.plan.step) + " sample " + std::to_string(Raw(sample));
  if (!stored_fields_.empty()) {
    const Result<Extent> extent =
        parts_.index->extent(parts_.schema[stored_fields_.front()].index_field, sample);
    if (!extent.ok()) return text;
    const Result<ObjectInfo> object = parts_.index->object(extent.value().object);
    if (object.ok()) text.append(" (").append(object.value().name).append(")");
  }
  return text;
}

}  // namespace headrace
