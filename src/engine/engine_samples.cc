// Engine: samples, from their bytes in memory to decoded rows.

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "engine/decode/stand_in.h"
#include "engine/engine.h"
#include "engine/engine_work.h"

namespace headrace {
namespace {

// Samples in cells that are fetched while others are decoded: enough to hide memory's latency.
constexpr std::size_t kPrefetchAhead = 8;

}  // namespace

std::uint64_t Engine::StoredBytes(const StepWork& work, std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    bytes += work.pieces[slot * stored_fields_.size() + field].size;
  }
  return bytes;
}

// Cuts the samples into tasks large enough to be worth a thread each.
void Engine::SubmitDecodes(StepWork& work, std::span<const std::uint32_t> slots) {
  std::unique_ptr<DecodeTask> task;
  Lane& lane = *work.lane;
  const auto submit = [&] { lane.to_decode.push_back(std::move(task)); };
  for (const std::uint32_t slot : slots) {
    if (task == nullptr) {
      task = std::make_unique<DecodeTask>();
      task->work = &work;
    }
    task->slots.push_back(slot);
    task->stored_bytes += StoredBytes(work, slot);
    if (task->stored_bytes >= options_.decode_task_bytes) submit();
  }
  if (task != nullptr) submit();
  StartDecodes(lane);
}

// Hands decode tasks to the executor, as many as the lane's share has.
void Engine::StartDecodes(Lane& lane) {
  while (!lane.to_decode.empty() &&
         (shares_.empty() || lane.decodes_in_flight < shares_[lane.number].decodes)) {
    DecodeTask* const raw = lane.to_decode.front().release();
    lane.to_decode.pop_front();
    ++lane.decodes_in_flight;
    inbox_->BeginWork();
    const std::uint64_t deadline = raw->work->Deadline(raw->work->decoding_bytes);
    raw->work->decoding_bytes += raw->stored_bytes;
    lane.parts.executor->SubmitSized(deadline, raw->stored_bytes, [this, raw] {
      std::unique_ptr<DecodeTask> done(raw);
      RunDecode(*done);
      inbox_->Post({.kind = Event::Kind::kDecoded, .task = std::move(done)});
    });
  }
}

void Engine::RunDecode(DecodeTask& task) {
  const std::int64_t start_ns = parts_.clock->NowNanos();
  const int threads_before = decoding_.fetch_add(1, std::memory_order_relaxed) + 1;
  GatheredBytes scratch;
  for (std::size_t i = 0; i < task.slots.size(); ++i) {
    if (stop_.stop_requested()) break;
    if (i + kPrefetchAhead < task.slots.size()) {
      const CellRun cells = task.work->samples[task.slots[i + kPrefetchAhead]].cells;
      if (cells != kNoCells) parts_.residents->Prefetch(cells);
    }
    DecodeSlot(task, task.slots[i], scratch);
  }
  task.decode_ns = parts_.clock->NowNanos() - start_ns;
  const int threads_after = decoding_.fetch_sub(1, std::memory_order_relaxed);
  task.threads = (threads_before + threads_after + 1) / 2;
}

// Decodes a sample, or fails it, or leaves it until there is scratch memory.
void Engine::DecodeSlot(DecodeTask& task, std::uint32_t slot, GatheredBytes& scratch) {
  ScratchLimit limit;
  if (parts_.scratch != nullptr) limit = parts_.scratch->small();
  if (task.lease.bytes() != 0) limit.bytes_max = task.lease.bytes();
  const std::uint64_t copied_bytes = task.copied_bytes;
  const StepWork& work = *task.work;
  const Tier::Pin& entry = work.samples[slot].entry;
  const StoredSample stored = {
      .key = {.seed = options_.seed, .epoch = work.plan.epoch, .sample = work.batch->samples[slot]},
      .pieces = work.pieces.data() + slot * stored_fields_.size(),
      .cells = work.samples[slot].cells,
      .entry = entry ? &entry : nullptr};
  Status status = decoder_.Decode(stored, *work.batch, slot, scratch, limit, task.copied_bytes);
  if (!status.ok() && limit.bytes_needed > limit.bytes_max) {
    const Status fits = parts_.scratch->Check(limit.bytes_needed);
    if (fits.ok()) {
      task.large.emplace_back(slot, limit.bytes_needed);
      task.copied_bytes = copied_bytes;
      task.stored_bytes -= StoredBytes(*task.work, slot);
      return;
    }
    status = fits.WithContext(status.message());
  }
  if (!status.ok()) {
    task.failures.emplace_back(slot, std::move(status));
  } else if (task.work->samples[slot].keep != nullptr) {
    KeepSample(task, slot);
  }
}

// Of the samples left for later, those whose bytes are lost when the task ends are read again, into
// staging memory.
void Engine::ReadLargeAgain(DecodeTask& task) {
  StepWork& work = *task.work;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> stay;
  for (const auto& large : task.large) {
    ReadUnit& unit =
        static_cast<ReadUnit&>(*work.pieces[large.first].read);  // Of their one stored field.
    if (!unit.memory().empty()) {
      stay.push_back(large);
      continue;
    }
    fetcher_.Finish();
    --work.lane->reads_in_flight;
    work.issued_bytes -= unit.extent.range.size;
    unit.outlasts = true;
    if (!ended_) work.lane->to_read.push_front({&unit});
    std::erase(task.slots, large.first);
  }
  task.large = std::move(stay);
}

void Engine::OnDone(DecodeTask& task) {
  StepWork& work = *task.work;
  ReadLargeAgain(task);
  fetcher_.Finish(task.slots.size());
  work.lane->reads_in_flight -= static_cast<std::uint32_t>(task.slots.size());
  work.MarkRead(now_ns_, task.slots.size());
  for (const std::uint32_t slot : task.slots) --work.samples[slot].pieces_left;
  OnDecoded(task);
}

void Engine::OnDecoded(DecodeTask& task) {
  StepWork& work = *task.work;
  Lane& lane = *work.lane;
  lane.stats.decode_ns += task.decode_ns;
  lane.stats.sample_bytes += task.stored_bytes;
  lane.stats.copied_bytes += task.copied_bytes;
  work.batch->times.sample_bytes += task.stored_bytes;
  Learn(task.decode_ns, task.stored_bytes, lane.decode_ns_per_byte);
  for (const auto& [slot, status] : task.kept) {
    Tier* const tier = std::exchange(work.samples[slot].keep, nullptr);
    FinishKeep(work.batch->samples[slot], tier, status);
  }
  task.lease.Reset();
  std::size_t next_large = 0;
  std::size_t next_failure = 0;
  for (const std::uint32_t slot : task.slots) {
    if (next_large < task.large.size() && task.large[next_large].first == slot) {
      const std::uint64_t bytes = task.large[next_large++].second;
      if (!ended_) large_.emplace(work.deadline, std::pair(Row(&work, slot), bytes));
    } else if (next_failure < task.failures.size() && task.failures[next_failure].first == slot) {
      SampleFailed(work, slot, std::move(task.failures[next_failure++].second));
    } else {
      EndSample(work, slot);
    }
  }
  StartLargeDecodes();
}

// Gives scratch memory to the large decodes that are due first. None overtakes another: otherwise a
// huge one might wait for ever.
void Engine::StartLargeDecodes() {
  while (!large_.empty()) {
    const auto [row, bytes] = large_.begin()->second;
    std::optional<ScratchLease> lease = parts_.scratch->Acquire(bytes);
    if (!lease.has_value()) return;
    Lane& lane = *row.first->lane;
    auto task = std::make_unique<DecodeTask>();
    task->work = row.first;
    task->slots.push_back(row.second);
    task->stored_bytes = StoredBytes(*row.first, row.second);
    task->lease = *std::move(lease);
    large_.erase(large_.begin());
    lane.to_decode.push_front(std::move(task));
    StartDecodes(lane);
  }
}

// A sample is decoded, or is in its tier: done when both are.
void Engine::EndSample(StepWork& work, std::uint32_t slot) {
  if (--work.samples[slot].ends_left == 0) SampleDone(work, slot);
}

void Engine::SampleDone(StepWork& work, std::uint32_t slot) {
  ReleasePieces(work, slot);
  work.MarkDone(now_ns_);
}

// The staging memory of a read goes back with the last sample that lies in it, cells with theirs.
void Engine::ReleasePieces(StepWork& work, std::uint32_t slot) {
  work.samples[slot].entry.Reset();
  const CellRun cells = std::exchange(work.samples[slot].cells, kNoCells);
  if (cells != kNoCells) parts_.residents->Release(cells);
  for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
    Piece& piece = work.pieces[slot * stored_fields_.size() + field];
    auto* const unit = static_cast<ReadUnit*>(std::exchange(piece.read, nullptr));
    if (unit != nullptr && --unit->pieces_left == 0) unit->buffer.Reset();
  }
}

void Engine::SampleFailed(StepWork& work, std::uint32_t slot, Status status) {
  SampleWork& sample = work.samples[slot];
  const bool from_tier = static_cast<bool>(sample.entry);
  ReleasePieces(work, slot);
  DropKeep(work, slot);
  if (from_tier && !ended_) {
    FallBack(work, slot);
    return PlanSampleReads(work, slot);
  }
  const SampleId wanted = work.plan.deliveries[slot].sample;
  const std::uint64_t sample_count = parts_.index->sample_count();
  const bool substitute = options_.on_error == OnError::kSubstitute &&
                          IsErrorOfSample(status.code()) && !ended_ && sample_count > 1 &&
                          sample.draws < options_.substitutes_max;
  if (!substitute) {
    if (!work.error.has_value() || slot < work.error->first) {
      status = status.WithContext(Describe(work, slot));
      work.error.emplace(slot, std::move(status));
    }
    work.MarkDone(now_ns_);
    return;
  }
  if (sample.reason.ok()) sample.reason = status.WithContext(Describe(work, slot));
  work.batch->samples[slot] =
      DrawStandIn(options_.seed, work.plan.epoch, wanted, sample.draws++, sample_count);
  if (stored_fields_.empty()) {
    SubmitDecodes(work, {&slot, 1});
  } else {
    PlanSampleReads(work, slot);
  }
}

}  // namespace headrace
