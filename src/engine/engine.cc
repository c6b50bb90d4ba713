#include "engine/engine.h"

#include <algorithm>
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

Engine::Engine(const Parts& parts, const EngineOptions& options, std::unique_ptr<Order> order,
               std::unique_ptr<TierCache> tiers)
    : parts_(parts),
      options_(options),
      stored_fields_(StoredFields(parts.schema)),
      order_(std::move(order)),
      tiers_(stored_fields_.empty() ? nullptr : std::move(tiers)) {
  if (tiers_ != nullptr) stats_.tiers.uses.resize(tiers_->tiers().size());
  HEADRACE_CHECK(options.batches_max > 0 && options.reads_in_flight_max > 0);
  parts_.batch_memory->SetReleaseHook([this] { PostLater({.kind = Event::Kind::kReleased}); });
}

Engine::~Engine() {
  MutexLock lock(state_mutex_);
  HEADRACE_CHECK(closed_);
}

void Engine::Start() { PostLater({.kind = Event::Kind::kStart}); }

void Engine::OnTaken() { PostLater({.kind = Event::Kind::kTaken}); }

// Runs the machine on the consumer's thread, which has nothing better to do: the executor may be
// busy.
void Engine::OnWaiting() {
  Post({.kind = Event::Kind::kWaiting, .time_ns = parts_.clock->NowNanos()});
}

void Engine::Stop() {
  {
    MutexLock lock(state_mutex_);
    ended_ = true;
    to_read_.clear();
    block_units_.clear();
  }
  // Last: tasks that see it leave their samples undone, and only ended_ keeps these from the sink.
  stop_.request_stop();
}

void Engine::Close() {
  Stop();
  {
    MutexLock lock(state_mutex_);
    // Once: after that the memory, and its hook, may be another engine's.
    if (!std::exchange(closed_, true)) parts_.batch_memory->SetReleaseHook(nullptr);
  }
  {
    MutexLock lock(inbox_mutex_);
    while (running_ || in_flight_ != 0 || !inbox_.empty()) idle_.Wait(inbox_mutex_);
  }
  MutexLock lock(state_mutex_);
  ReleaseAllCells();
}

bool Engine::quiescent() const {
  MutexLock lock(inbox_mutex_);
  return !running_ && in_flight_ == 0 && inbox_.empty();
}

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    MutexLock lock(state_mutex_);
    stats = stats_;
    stats.steps_in_work = steps_.size();
    if (tiers_ != nullptr) {
      const std::span<const std::uint64_t> planned = tiers_->planned_uses();
      stats.tiers.planned.assign(planned.begin(), planned.end());
    }
  }
  stats.staging = parts_.staging->stats();
  stats.batch = parts_.batch_memory->stats();
  if (parts_.residents != nullptr) stats.resident = parts_.residents->stats();
  if (parts_.pinned != nullptr) stats.pinned = parts_.pinned->stats();
  return stats;
}

bool Engine::Enqueue(Event event) {
  MutexLock lock(inbox_mutex_);
  inbox_.push_back(std::move(event));
  if (running_) return false;
  running_ = true;
  return true;
}

void Engine::Post(Event event) {
  if (Enqueue(std::move(event))) RunMachine();
}

void Engine::PostLater(Event event) {
  {
    MutexLock lock(inbox_mutex_);
    inbox_.push_back(std::move(event));
    if (running_ || run_scheduled_) return;
    run_scheduled_ = true;
    ++in_flight_;
  }
  parts_.executor->Submit(/*deadline=*/0, [this] {
    {
      MutexLock lock(inbox_mutex_);
      run_scheduled_ = false;
      --in_flight_;
      if (running_) return;
      running_ = true;
    }
    RunMachine();
  });
}

void Engine::RunMachine() {
  std::vector<Event> events;
  for (;;) {
    events.clear();
    {
      MutexLock lock(inbox_mutex_);
      if (inbox_.empty()) {
        running_ = false;
        idle_.NotifyAll();
        return;
      }
      events.swap(inbox_);
    }
    std::uint64_t completions = 0;
    {
      MutexLock lock(state_mutex_);
      AccountStall(parts_.clock->NowNanos());
      for (Event& event : events) {
        completions += event.kind >= Event::Kind::kRead;
        Handle(event);
      }
      Advance();
      stall_cause_ = CurrentCause();
    }
    MutexLock lock(inbox_mutex_);
    in_flight_ -= completions;  // Only now: until here their work could be touched.
  }
}

void Engine::Handle(Event& event) {
  switch (event.kind) {
    case Event::Kind::kStart:
      started_ = true;
      return;
    case Event::Kind::kRead:
      --stats_.reads_in_flight;
      OnRead(*event.unit, std::move(event.data));
      return;
    case Event::Kind::kDecoded:
      OnDecoded(*event.task);
      return;
    case Event::Kind::kDone:
      --stats_.reads_in_flight;
      OnDone(*event.unit, *event.task);
      return;
    case Event::Kind::kBlockRead:
    case Event::Kind::kCopied:
      if (std::exchange(event.block_unit->reading, false)) --stats_.reads_in_flight;
      if (event.kind == Event::Kind::kBlockRead) {
        OnBlockRead(*event.block_unit, std::move(event.data));
      } else {
        OnCopied(*event.block_unit);
      }
      return;
    case Event::Kind::kKept: {
      const auto [work, slot] = event.row;
      Tier* const tier = std::exchange(work->samples[slot].keep, nullptr);
      FinishKeep(work->batch->samples[slot], tier, event.data.status());
      EndSample(*work, slot);
      return;
    }
    case Event::Kind::kFillRead:
      --stats_.reads_in_flight;
      OnFillRead(*event.fill, event.part, std::move(event.data));
      return;
    case Event::Kind::kFilled:
      OnFilled(*event.fill, event.data.status());
      return;
    case Event::Kind::kTaken:
      HEADRACE_CHECK(ready_ > 0);
      --ready_;
      return;
    case Event::Kind::kWaiting:
      // What it waits for came in the meantime; or it said so before.
      if (ready_ > 0 || ended_ || waiting_) return;
      waiting_ = true;
      stall_since_ns_ = event.time_ns;
      return;
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
  if (to_read_.empty()) IssueBlockReads();
  if (!ended_) IssueReads();  // Of stand-ins for samples that no block read can bring.
  if (!ended_ && tiers_ != nullptr && to_read_.empty() && block_units_.empty()) IssueAhead();
  HandOver();  // Steps without rows, and steps that failed before a read.
}

bool Engine::AdmitStep() {
  if (steps_.size() + ready_ >= options_.batches_max) return false;
  if (!next_step_.has_value()) {
    if (plan_ended_) return false;
    next_step_ = order_->Next();
    if (!next_step_.has_value()) {
      plan_ended_ = true;
      return false;
    }
  }
  Result<std::shared_ptr<Batch>> batch = MakeBatch(*next_step_);
  if (!batch.ok()) {
    if (steps_.empty() && ready_ == 0) End(batch.status());  // Else after those that came before.
    return false;
  }
  if (batch.value() == nullptr) return false;  // Until memory is released.

  auto work = std::make_unique<StepWork>();
  work->sequence = ++sequence_;
  work->plan = *std::move(next_step_);
  next_step_.reset();
  work->batch = std::move(batch).value();
  work->samples.resize(work->plan.deliveries.size());
  work->samples_left = work->samples.size();
  work->samples_unread = work->samples.size();
  work->pieces.resize(work->samples.size() * stored_fields_.size());
  steps_.push_back(std::move(work));
  if (!stored_fields_.empty()) QueueBlockReads(*steps_.back());
  if (tiers_ != nullptr) FindInTiers(*steps_.back());
  PlanReads(*steps_.back());
  return true;
}

// Where the ragged rows of a step go, by ragged field and slot, after its other fields.
std::vector<ByteRange> Engine::LayOutRows(const Step& step) const {
  std::vector<ByteRange> rooms;
  std::uint64_t end = FixedBatchBytes(parts_.schema, step.deliveries.size());
  for (const BatchField& field : parts_.schema) {
    if (!field.ragged) continue;
    for (const Delivery& delivery : step.deliveries) {
      // An extent that cannot be had fails with its sample, when its read is planned.
      const Result<Extent> extent = parts_.index->extent(field.index_field, delivery.sample);
      const ByteRange range = extent.ok() ? extent.value().range : ByteRange();
      // Out of cells rows are copied, so that none is a buffer to read into.
      rooms.push_back(
          delivery.block_read != kNoBlockRead
              ? ByteRange{RoundUp(end, kRowAlignment), field.codec->RowBytes(range.size)}
              : RowRoom(field, range.size, parts_.store->BufferBytes(range), end));
      end = rooms.back().end();
    }
  }
  return rooms;
}

// Memory for a batch; none: not now. Where waiting would be in vain it is memory beyond the budget:
// all is free and not enough, or nothing is in work and the waiting consumer holds the rest.
Result<Buffer> Engine::AcquireBatch(std::uint64_t bytes, bool& beyond_budget) {
  beyond_budget = false;
  std::optional<Buffer> memory = parts_.batch_memory->Acquire(bytes);
  if (memory.has_value()) return *std::move(memory);
  if (!steps_.empty() || ready_ > 0) return Buffer();
  if (!waiting_ && parts_.batch_memory->stats().used_bytes != 0) return Buffer();
  beyond_budget = true;
  memory = parts_.batch_memory->AcquireBeyond(bytes);
  if (memory.has_value()) return *std::move(memory);
  return Status(StatusCode::kResourceExhausted,
                "allocating " + FormatBytes(bytes) +
                    " for a batch: the system has no memory; lower batch_size=");
}

// Null: no memory now.
Result<std::shared_ptr<Batch>> Engine::MakeBatch(const Step& step) {
  const std::uint64_t rows = step.deliveries.size();
  const std::vector<ByteRange> rooms = LayOutRows(step);
  const std::uint64_t bytes =
      rooms.empty() ? FixedBatchBytes(parts_.schema, rows) : rooms.back().end();
  auto batch = std::make_shared<Batch>();
  HEADRACE_ASSIGN_OR_RETURN(batch->memory, AcquireBatch(bytes, batch->beyond_budget));
  const std::span<std::byte> memory = batch->memory.bytes();
  if (memory.empty()) return std::shared_ptr<Batch>();

  batch->epoch = step.epoch;
  batch->step = step.step;
  batch->ends_epoch = step.ends_epoch;
  batch->samples.reserve(rows);
  for (const Delivery& delivery : step.deliveries) batch->samples.push_back(delivery.sample);
  if (tiers_ != nullptr) batch->sources.assign(rows, kNoTier);
  std::uint64_t offset = 0;
  auto room = rooms.begin();
  for (const BatchField& field : parts_.schema) {
    BatchRows& out = batch->fields.emplace_back();
    if (!field.ragged) {
      out.packed = memory.subspan(offset, rows * field.row_bytes);
      offset += RoundUp(out.packed.size(), kBufferAlignment);
      continue;
    }
    out.rows.reserve(rows);
    for (std::uint64_t slot = 0; slot < rows; ++slot, ++room) {
      out.rows.push_back(memory.subspan(room->offset, room->size));
    }
  }
  return batch;
}

void Engine::HandOver() {
  while (!ended_ && !steps_.empty() && steps_.front()->samples_left == 0 &&
         HaveCome(steps_.front()->plan.reads_due)) {
    const std::unique_ptr<StepWork> work = std::move(steps_.front());
    steps_.pop_front();
    if (work->error.has_value()) {
      End(work->error->second);
      return;
    }
    for (std::uint32_t slot = 0; slot < work->samples.size(); ++slot) {
      if (work->samples[slot].reason.ok()) continue;
      ++stats_.substituted;
      work->batch->substitutions.push_back(
          {.epoch = work->plan.epoch,
           .step = work->plan.step,
           .slot = slot,
           .wanted = work->plan.deliveries[slot].sample,
           .given = work->batch->samples[slot],
           .reason = std::string(work->samples[slot].reason.message())});
      if (stats_.substitutions.size() >= kSubstitutionsListed) continue;
      stats_.substitutions.push_back(work->batch->substitutions.back());
    }
    ++stats_.batches;
    stats_.samples += work->samples.size();
    ++ready_;
    if (waiting_) {
      AccountStall(parts_.clock->NowNanos());
      waiting_ = false;
    }
    parts_.sink->OnBatch(std::move(work->batch));
  }
  if (!ended_ && plan_ended_ && steps_.empty() && !next_step_.has_value()) End(Status());
}

void Engine::End(Status status) {
  ended_ = true;
  waiting_ = false;
  stop_.request_stop();
  to_read_.clear();
  block_units_.clear();
  parts_.sink->OnEnd(std::move(status));
}

StallCause Engine::CurrentCause() const {
  if (steps_.empty()) return next_step_.has_value() ? StallCause::kConsumer : StallCause::kStorage;
  // Nothing was read ahead for it, because there was no memory to read ahead into.
  if (steps_.front()->batch->beyond_budget) return StallCause::kConsumer;
  // One whose samples are all done waits for reads that are due.
  if (steps_.front()->samples_unread > 0 || steps_.front()->samples_left == 0) {
    return StallCause::kStorage;
  }
  return StallCause::kDecode;
}

void Engine::AccountStall(std::int64_t now_ns) {
  if (!waiting_ || now_ns <= stall_since_ns_) return;
  stats_.stall_ns[static_cast<std::size_t>(stall_cause_)] += now_ns - stall_since_ns_;
  stall_since_ns_ = now_ns;
}

}  // namespace headrace
