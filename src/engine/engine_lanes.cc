// Engine: lanes. Steps are admitted for all of them at once, batches handed over lane by lane.

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"

namespace headrace {
namespace {

// Removes the reads from all deliveries: every field of the batch is in the index.
void DropReads(Step& step) {
  step.reads.clear();
  step.releases.clear();
  step.reads_due = 0;
  for (Delivery& delivery : step.deliveries) delivery.block_read = kNoBlockRead;
}

}  // namespace

bool Engine::LanesHaveRoom() const {
  bool anybody = false;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended) continue;
    anybody = true;
    if (lane->steps.size() + lane->ready >= options_.batches_max) return false;
  }
  return anybody;
}

bool Engine::AdmitStep() {
  if (!LanesHaveRoom()) return false;
  if (!next_step_.has_value()) {
    if (plan_ended_) return false;
    next_step_ = order_->Next();
    if (!next_step_.has_value()) {
      plan_ended_ = true;
      return false;
    }
    if (stored_fields_.empty()) DropReads(*next_step_);
    SplitNextStep();
  }
  if (!MakeBatches()) return false;
  Step step = *std::move(next_step_);
  next_step_.reset();
  ++sequence_;
  QueueBlockReads(step);
  std::vector<StepWork*> works;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended) {
      LetGo(*lane);
    } else {
      works.push_back(AdmitToLane(*lane));
    }
  }
  if (lanes_.size() > 1) WeighLanes(works);
  if (tiers_ != nullptr) {
    for (StepWork* const work : works) FindInTiers(*work);
    tiers_->Advance(step);
  }
  if (parts_.policy != nullptr) SplitShares({.epoch = step.epoch, .step = step.step}, works);
  for (StepWork* const work : works) PlanReads(*work);
  return true;
}

// Gives each lane its deliveries of the step that was pulled.
void Engine::SplitNextStep() {
  std::vector<Delivery> all = std::move(next_step_->deliveries);
  auto begin = all.cbegin();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    const std::uint32_t rank = parts_.first_rank + lane->number;
    lane->next = {.epoch = next_step_->epoch,
                  .step = next_step_->step,
                  .ends_epoch = next_step_->ends_epoch,
                  .reads_due = next_step_->reads_due};
    if (lanes_.size() == 1) {
      lane->next.deliveries = std::move(all);
      return;
    }
    const auto end =
        std::find_if(begin, all.cend(), [rank](const Delivery& each) { return each.rank != rank; });
    lane->next.deliveries.assign(begin, end);
    begin = end;
  }
  HEADRACE_CHECK(begin == all.cend());  // Else the plan is for other ranks.
}

// Makes the batches of the next step, as far as there is memory. True: each lane has its own.
bool Engine::MakeBatches() {
  bool complete = true;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended || lane->next_batch != nullptr) continue;
    Result<std::shared_ptr<Batch>> batch = MakeBatch(*lane, lane->next);
    if (!batch.ok()) {
      // After those that came before.
      if (lane->steps.empty() && lane->ready == 0) End(batch.status());
      return false;
    }
    lane->next_batch = std::move(batch).value();
    complete = complete && lane->next_batch != nullptr;
  }
  return complete;
}

Engine::StepWork* Engine::AdmitToLane(Lane& lane) {
  auto work = std::make_unique<StepWork>();
  work->lane = &lane;
  work->deadline = FirstDeadline(sequence_);
  work->plan = std::exchange(lane.next, Step());
  work->batch = std::move(lane.next_batch);
  work->batch->times.admitted_ns = now_ns_;
  work->batch->times.read_ns = now_ns_;
  work->batch->times.done_ns = now_ns_;
  work->samples.resize(work->plan.deliveries.size());
  work->samples_left = work->samples.size();
  work->samples_unread = work->samples.size();
  work->pieces.resize(work->samples.size() * stored_fields_.size());
  return lane.steps.emplace_back(std::move(work)).get();
}

// The plan goes on without the lane: what block reads keep for it is released.
void Engine::LetGo(Lane& lane) {
  lane.next_batch.reset();
  for (const Delivery& delivery : std::exchange(lane.next, Step()).deliveries) {
    if (delivery.block_read == kNoBlockRead) continue;
    ReleaseKept({.block_read = delivery.block_read, .sample = delivery.sample});
  }
}

// What the lanes of a step have to do: its reads and tasks are due in the order of the part of it
// that comes before them, so that all lanes get on alike, and are done at one time.
void Engine::WeighLanes(std::span<StepWork* const> works) const {
  for (StepWork* const work : works) {
    for (const Delivery& delivery : work->plan.deliveries) {
      std::uint64_t bytes = 0;
      parts_.index->SampleBytes(delivery.sample, {&bytes, 1});
      work->stored_bytes += bytes;
    }
  }
}

void Engine::SplitShares(Position at, std::span<StepWork* const> works) {
  std::vector<LaneWork> loads(lanes_.size());
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    LaneWork& load = loads[lane->number];
    for (const std::vector<ReadUnit*>& group : lane->to_read) {
      for (const ReadUnit* const unit : group) load.queued_bytes += unit->extent.range.size;
    }
    for (const std::unique_ptr<StepWork>& work : lane->steps) {
      load.queued_samples += work->samples_left;
    }
    load.read_ns_per_byte = lane->read_ns_per_byte;
    load.decode_ns_per_byte = lane->decode_ns_per_byte;
    load.step_ns = lane->consumer.step_ns();
  }
  for (const StepWork* const work : works) {
    LaneWork& load = loads[work->lane->number];
    load.step_samples = work->samples.size();
    load.step_bytes = work->stored_bytes;
    load.queued_bytes += work->stored_bytes;
  }
  if (const Status status = parts_.policy->Split(at, loads, shares_); !status.ok()) {
    // The steps before come first.
    for (StepWork* const work : works) work->error.emplace(0, status);
  }
  for (const LaneShare& share : shares_) HEADRACE_CHECK(share.reads > 0 && share.decodes > 0);
  for (const std::unique_ptr<Lane>& lane : lanes_) StartDecodes(*lane);
}

// Of tasks that only decoded, and of all their samples.
void Engine::Observe(const DecodeTask& task) const {
  if (parts_.observer == nullptr || task.decode_ns <= 0 || task.stored_bytes == 0) return;
  if (!task.failures.empty() || !task.large.empty() || ended_) return;
  parts_.observer->OnDecoded({.samples = task.slots.size(),
                              .bytes = task.stored_bytes,
                              .threads = task.threads,
                              .nanoseconds = task.decode_ns});
}

// The lane whose next read is due first, of those that may read; null: there is none.
Engine::Lane* Engine::NextLaneToRead() {
  Lane* next = nullptr;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->to_read.empty() || lane->without_memory) continue;
    if (!shares_.empty() && lane->reads_in_flight >= shares_[lane->number].reads) continue;
    const auto deadline = [](const Lane& of) {
      const StepWork& work = *of.to_read.front().front()->work;
      return work.Deadline(work.issued_bytes);
    };
    if (next == nullptr || deadline(*lane) < deadline(*next)) next = lane.get();
  }
  return next;
}

bool Engine::nothing_to_read() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->to_read.empty(); });
}

void Engine::DropQueues() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    lane->to_read.clear();
    lane->to_decode.clear();
  }
  block_units_.clear();
  large_.clear();
}

// Null: no memory now.
Result<std::shared_ptr<Batch>> Engine::MakeBatch(const Lane& lane, const Step& step) {
  using WhenFull = BatchMaker::WhenFull;
  // Waiting is in vain where all memory is free and not enough, or where nothing is in work and the
  // waiting consumer holds the rest.
  WhenFull when_full = WhenFull::kWait;
  if (lane.steps.empty() && lane.ready == 0) {
    when_full = lane.consumer.waiting() ? WhenFull::kBeyond : WhenFull::kBeyondIfFree;
  }
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<Batch> batch,
                            batch_maker_.Make(step, *lane.parts.batch_memory, when_full));
  if (batch != nullptr && tiers_ != nullptr) batch->sources.assign(batch->samples.size(), kNoTier);
  return batch;
}

void Engine::HandOver() {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (!ended_) HandOver(*lane);
  }
  if (ended_ || !plan_ended_ || next_step_.has_value()) return;
  bool all = true;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->steps.empty() && !lane->ended) EndLane(*lane, Status());
    all = all && lane->ended;
  }
  if (all) End(Status());
}

void Engine::HandOver(Lane& lane) {
  while (!ended_ && !lane.steps.empty() && lane.steps.front()->samples_left == 0 &&
         HaveCome(lane.steps.front()->plan.reads_due)) {
    const std::unique_ptr<StepWork> work = std::move(lane.steps.front());
    lane.steps.pop_front();
    if (lane.ended) continue;  // There is nobody to give it to.
    if (work->error.has_value()) {
      End(work->error->second);
      return;
    }
    NoteSubstitutions(*work);
    BatchTimes& times = work->batch->times;
    times.busy_ns =
        std::max<std::int64_t>(0, times.done_ns - std::max(times.admitted_ns, lane.done_ns));
    lane.done_ns = std::max(lane.done_ns, times.done_ns);
    lane.stats.busy_ns += times.busy_ns;
    ++lane.stats.batches;
    lane.stats.samples += work->samples.size();
    ++lane.ready;
    times.handed_ns = parts_.clock->NowNanos();
    if (lane.consumer.waiting()) {
      AccountStall(lane, times.handed_ns);
      lane.consumer.OnBatch();
    }
    times.stall_ns = lane.consumer.TakeNew();
    lane.parts.sink->OnBatch(std::move(work->batch));
  }
}

void Engine::NoteSubstitutions(StepWork& work) {
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    if (work.samples[slot].reason.ok()) continue;
    ++stats_.substituted;
    work.batch->substitutions.push_back(
        {.epoch = work.plan.epoch,
         .step = work.plan.step,
         .slot = slot,
         .wanted = work.plan.deliveries[slot].sample,
         .given = work.batch->samples[slot],
         .reason = std::string(work.samples[slot].reason.message())});
    if (stats_.substitutions.size() >= kSubstitutionsListed) continue;
    stats_.substitutions.push_back(work.batch->substitutions.back());
  }
}

void Engine::EndLane(Lane& lane, const Status& status) {
  lane.ended = true;
  lane.consumer.OnEnd();
  lane.parts.sink->OnEnd(status);
}

void Engine::End(const Status& status) {
  ended_ = true;
  stop_.request_stop();
  DropQueues();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (!lane->ended) EndLane(*lane, status);
  }
}

void Engine::OnTakenAt(Lane& lane, std::int64_t now_ns) {
  HEADRACE_CHECK(lane.ready > 0);
  --lane.ready;
  lane.consumer.OnTaken(now_ns);
}

void Engine::OnWaitingAt(Lane& lane, std::int64_t now_ns) {
  // What it waits for came in the meantime; or it said so before.
  if (lane.ready > 0 || lane.ended) return;
  lane.consumer.OnWaiting(now_ns);
}

StallCause Engine::CurrentCause(const Lane& lane) const {
  if (lane.steps.empty()) {
    if (next_step_.has_value() && lane.next_batch == nullptr) return StallCause::kConsumer;
    return FindHolding() == nullptr ? StallCause::kStorage : StallCause::kRanks;
  }
  const StepWork& oldest = *lane.steps.front();
  // Nothing was read ahead for it, because there was no memory to read ahead into.
  if (oldest.batch->beyond_budget) return StallCause::kConsumer;
  // One whose samples are all done waits for reads that are due.
  const bool unread = oldest.samples_unread > oldest.samples_tried;
  if (unread || oldest.samples_left == 0) return StallCause::kStorage;
  return StallCause::kDecode;
}

// The lane whose consumer takes no more, so that no step can be admitted; null: there is none.
Engine::Lane* Engine::FindHolding() const {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended || lane->consumer.waiting() || !lane->steps.empty()) continue;
    const bool full = lane->ready >= options_.batches_max;
    if (full || (next_step_.has_value() && lane->next_batch == nullptr)) return lane.get();
  }
  return nullptr;
}

void Engine::AccountStall(Lane& lane, std::int64_t now_ns) {
  const std::int64_t ns = lane.consumer.Account(now_ns);
  if (ns == 0 || lane.consumer.cause() != StallCause::kRanks) return;
  if (Lane* const holding = FindHolding()) holding->stats.held_up_ns += ns;
}

}  // namespace headrace
