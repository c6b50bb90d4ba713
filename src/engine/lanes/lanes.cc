#include "engine/lanes/lanes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace headrace {
namespace {

// While tasks only copy rows, without waiting for a device, so many bytes of at least so many steps
// keep all of them busy. Memory of more steps would not stay in the processor's cache until it is
// used again.
constexpr std::uint64_t kCopiedAheadBytes = 4 * kMiB;
constexpr std::size_t kStepsToCopy = 2;

}  // namespace

// One rank's place.
struct Lanes::Lane {
  std::uint32_t number = 0;
  EngineLane parts;
  Step next;                          // its part of the next step ...
  std::shared_ptr<Batch> next_batch;  // ... once there was memory
  std::deque<std::unique_ptr<StepWork>> steps;
  std::uint64_t ready = 0;  // handed over, not taken
  bool ended = false;       // its sink received the end, or its consumer is gone
  StallMeter consumer;
  std::int64_t done_ns = 0;  // when the batch handed over last was done
  LaneStats stats;           // without what stats() adds
};

Lanes::Lanes(const LoopContext& loop, LaneOptions options, std::span<const EngineLane> lanes,
             const BatchMaker& batch_maker)
    : loop_(loop), options_(std::move(options)), batch_maker_(batch_maker) {
  for (const EngineLane& each : lanes) {
    auto lane = std::make_unique<Lane>();
    lane->number = static_cast<std::uint32_t>(lanes_.size());
    lane->parts = each;
    lanes_.push_back(std::move(lane));
  }
}

Lanes::~Lanes() = default;

bool Lanes::has_room() const {
  bool anybody_needs_more = false;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended) continue;
    if (lane->steps.size() + lane->ready >= loop_.options.batches_max) return false;
    anybody_needs_more = anybody_needs_more || !CopiesEnough(*lane);
  }
  return anybody_needs_more;
}

// Whether the tasks have enough rows of the lane to copy, without waiting for a device.
bool Lanes::CopiesEnough(const Lane& lane) {
  if (lane.steps.size() < kStepsToCopy) return false;
  std::uint64_t bytes = 0;
  for (const std::unique_ptr<StepWork>& work : lane.steps) bytes += work->copying_bytes;
  return bytes >= kCopiedAheadBytes;
}

void Lanes::SetNext(Step step) {
  std::vector<Delivery> all = std::move(step.deliveries);
  next_ = std::move(step);
  auto begin = all.cbegin();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    const std::uint32_t rank = options_.first_rank + lane->number;
    lane->next = {.epoch = next_->epoch,
                  .step = next_->step,
                  .ends_epoch = next_->ends_epoch,
                  .reads_due = next_->reads_due};
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

Result<bool> Lanes::MakeBatches() {
  bool complete = true;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended || lane->next_batch != nullptr) continue;
    Result<std::shared_ptr<Batch>> batch = MakeBatch(*lane);
    if (!batch.ok()) {
      // After those that came before.
      if (lane->steps.empty() && lane->ready == 0) return batch.status();
      return false;
    }
    lane->next_batch = std::move(batch).value();
    complete = complete && lane->next_batch != nullptr;
  }
  return complete;
}

// Null: no memory now.
Result<std::shared_ptr<Batch>> Lanes::MakeBatch(const Lane& lane) const {
  using WhenFull = BatchMaker::WhenFull;
  // Waiting is in vain where all memory is free and not enough, or where nothing is in work and the
  // waiting consumer holds the rest.
  WhenFull when_full = WhenFull::kWait;
  if (lane.steps.empty() && lane.ready == 0) {
    when_full = lane.consumer.waiting() ? WhenFull::kBeyond : WhenFull::kBeyondIfFree;
  }
  HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<Batch> batch,
                            batch_maker_.Make(lane.next, *lane.parts.batch_memory, when_full));
  if (batch != nullptr && options_.sources) batch->sources.assign(batch->samples.size(), kNoTier);
  return batch;
}

AdmittedStep Lanes::Admit() {
  AdmittedStep admitted{.step = *std::exchange(next_, std::nullopt)};
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (!lane->ended) {
      admitted.works.push_back(AdmitTo(*lane));
      continue;
    }
    // The plan goes on without the lane.
    lane->next_batch.reset();
    for (const Delivery& delivery : std::exchange(lane->next, Step()).deliveries) {
      if (delivery.block_read == kNoBlockRead) continue;
      admitted.step.releases.push_back(
          {.block_read = delivery.block_read, .sample = delivery.sample});
    }
  }
  return admitted;
}

StepWork* Lanes::AdmitTo(Lane& lane) {
  auto work = std::make_unique<StepWork>();
  work->lane = lane.number;
  work->deadline = loop_.FirstDeadline();
  work->plan = std::exchange(lane.next, Step());
  work->batch = std::move(lane.next_batch);
  work->batch->times.admitted_ns = loop_.now_ns;
  work->batch->times.read_ns = loop_.now_ns;
  work->batch->times.done_ns = loop_.now_ns;
  work->samples.resize(work->plan.deliveries.size());
  work->samples_left = work->samples.size();
  work->samples_unread = work->samples.size();
  work->pieces.resize(work->samples.size() * loop_.fields.size());
  if (lanes_.size() > 1) Weigh(*work);
  return lane.steps.emplace_back(std::move(work)).get();
}

// What the lanes of a step have to do: its reads and tasks are due in the order of the part of it
// that comes before them, so that all lanes get on alike, and are done at one time.
void Lanes::Weigh(StepWork& work) const {
  for (const Delivery& delivery : work.plan.deliveries) {
    std::uint64_t bytes = 0;
    loop_.fields.index().SampleBytes(delivery.sample, {&bytes, 1});
    work.stored_bytes += bytes;
  }
}

// By the first source of each sample: of those that a tier in memory has nothing is read.
BySource<std::uint64_t> Lanes::ReadsOf(const StepWork& work) const {
  BySource<std::uint64_t> reads;
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    std::uint64_t bytes = 0;
    loop_.fields.index().SampleBytes(work.plan.deliveries[slot].sample, {&bytes, 1});
    switch (work.samples[slot].chain.first()) {
      case SampleSource::kMemory:
        break;
      case SampleSource::kDisk:
        reads.tier += bytes;
        break;
      case SampleSource::kNode:
        reads.node += bytes;
        break;
      case SampleSource::kShare:
      case SampleSource::kStorage:
        reads.storage += bytes;
        break;
    }
  }
  return reads;
}

std::vector<LaneWork> Lanes::Loads(std::span<StepWork* const> works) const {
  std::vector<LaneWork> loads(lanes_.size());
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    LaneWork& load = loads[lane->number];
    for (const std::unique_ptr<StepWork>& work : lane->steps) {
      load.queued_samples += work->samples_left;
    }
    load.step_ns = lane->consumer.step_ns();
  }
  for (const StepWork* const work : works) {
    LaneWork& load = loads[work->lane];
    load.step_samples = work->samples.size();
    load.step_bytes = work->stored_bytes;
    load.step_reads = ReadsOf(*work);
    load.queued_bytes = load.step_reads;
  }
  return loads;
}

const Status* Lanes::HandOver(bool plan_ended) {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->steps.empty() || lane->steps.front()->samples_left > 0) continue;
    if (const Status* const end = HandOver(*lane)) return end;
  }
  return plan_ended && !next_.has_value() ? EndLanes() : nullptr;
}

// Ends the lanes that have nothing before them any more. Null: others have.
const Status* Lanes::EndLanes() {
  bool all = true;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->steps.empty() && !lane->ended) EndLane(*lane, Status());
    all = all && lane->ended;
  }
  return all ? &end_ : nullptr;
}

const Status* Lanes::HandOver(Lane& lane) {
  while (!lane.steps.empty() && lane.steps.front()->samples_left == 0 &&
         options_.have_come(lane.steps.front()->plan.reads_due)) {
    if (!lane.ended && !Check(*lane.steps.front())) return nullptr;
    const std::unique_ptr<StepWork> work = std::move(lane.steps.front());
    lane.steps.pop_front();
    if (lane.ended) continue;  // There is nobody to give it to.
    if (work->error.has_value()) {
      end_ = std::move(work->error->second);
      return &end_;
    }
    HandOver(lane, *work);
  }
  return nullptr;
}

// An error of its data as a whole is the cause of those of single samples. False: not known yet.
bool Lanes::Check(StepWork& work) const {
  if (!options_.check) return true;
  const std::optional<Status> status = options_.check(work.plan.ends_epoch && !work.error);
  if (!status.has_value()) return false;
  if (!status->ok()) work.error.emplace(0, *status);
  return true;
}

void Lanes::HandOver(Lane& lane, StepWork& work) {
  NoteSubstitutions(work);
  BatchTimes& times = work.batch->times;
  times.busy_ns =
      std::max<std::int64_t>(0, times.done_ns - std::max(times.admitted_ns, lane.done_ns));
  lane.done_ns = std::max(lane.done_ns, times.done_ns);
  lane.stats.busy_ns += times.busy_ns;
  ++lane.stats.batches;
  lane.stats.samples += work.samples.size();
  ++lane.ready;
  times.handed_ns = loop_.clock.NowNanos();
  if (lane.consumer.waiting()) {
    Account(lane, times.handed_ns);
    lane.consumer.OnBatch();
  }
  times.stall_ns = lane.consumer.TakeNew();
  lane.parts.sink->OnBatch(std::move(work.batch));
}

void Lanes::NoteSubstitutions(StepWork& work) {
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

void Lanes::EndLane(Lane& lane, const Status& status) {
  lane.ended = true;
  lane.consumer.OnEnd();
  lane.parts.sink->OnEnd(status);
}

void Lanes::End(const Status& status) {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (!lane->ended) EndLane(*lane, status);
  }
}

std::uint64_t Lanes::taken() const {
  std::uint64_t taken = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    taken = std::max<std::uint64_t>(taken, lane->stats.batches - lane->ready);
  }
  return taken;
}

void Lanes::Leave(std::uint32_t lane) {
  Lane& of = *lanes_.at(lane);
  Account(of, loop_.clock.NowNanos());
  of.consumer.OnEnd();
  of.ended = true;
  of.stats.gone = true;
}

void Lanes::OnTaken(std::uint32_t lane, std::int64_t now_ns) {
  Lane& of = *lanes_.at(lane);
  HEADRACE_CHECK(of.ready > 0);
  --of.ready;
  of.consumer.OnTaken(now_ns);
}

void Lanes::OnWaiting(std::uint32_t lane, std::int64_t now_ns) {
  Lane& of = *lanes_.at(lane);
  // What it waits for came in the meantime; or it said so before.
  if (of.ready > 0 || of.ended) return;
  of.consumer.OnWaiting(now_ns);
}

void Lanes::AccountStalls() {
  for (const std::unique_ptr<Lane>& lane : lanes_) Account(*lane, loop_.now_ns);
}

void Lanes::Account(Lane& lane, std::int64_t now_ns) const {
  const std::int64_t ns = lane.consumer.Account(now_ns);
  if (ns == 0 || lane.consumer.cause() != StallCause::kRanks) return;
  if (Lane* const holding = FindHolding()) holding->stats.held_up_ns += ns;
}

void Lanes::SetStallCauses() {
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->consumer.set_cause(CurrentCause(*lane));
  if (options_.wait != nullptr) SetWait();
}

// Of several consumers that wait, the one that has waited longest.
void Lanes::SetWait() const {
  const Lane* first = nullptr;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->steps.empty() || !lane->consumer.waiting()) continue;
    if (first == nullptr || lane->consumer.waits_since_ns() < first->consumer.waits_since_ns()) {
      first = lane.get();
    }
  }
  if (first == nullptr) return options_.wait->End();
  options_.wait->Begin(first->consumer.waits_since_ns(),
                       first->steps.front()->deadline + kDeadlinesOfStep - 1);
}

StallCause Lanes::CurrentCause(const Lane& lane) const {
  if (lane.steps.empty()) {
    if (next_.has_value() && lane.next_batch == nullptr) return StallCause::kConsumer;
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
Lanes::Lane* Lanes::FindHolding() const {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->ended || lane->consumer.waiting() || !lane->steps.empty()) continue;
    const bool full = lane->ready >= loop_.options.batches_max;
    if (full || (next_.has_value() && lane->next_batch == nullptr)) return lane.get();
  }
  return nullptr;
}

void Lanes::VisitWork(const std::function<void(StepWork&)>& visit) const {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    for (const std::unique_ptr<StepWork>& work : lane->steps) visit(*work);
  }
}

LanesStats Lanes::stats() const {
  LanesStats stats = stats_;
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    LaneStats& of_lane = stats.lanes.emplace_back(lane->stats);
    of_lane.stall_ns = lane->consumer.stall_ns();
    of_lane.ready = lane->ready;
    of_lane.steps_in_work = lane->steps.size();
  }
  return stats;
}

}  // namespace headrace
