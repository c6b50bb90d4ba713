// Engine: reads of single samples, from planned to bytes that are there.

#include <algorithm>
#include <string>

#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"
#include "fetch/coalesce.h"

namespace headrace {
namespace {

// Small reads that one task tries, at most.
constexpr std::uint32_t kTriesMax = 16;

bool IsAligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % kBufferAlignment == 0;
}

}  // namespace

// Plans the reads of all samples of a step. With one stored field, samples that lie near each other
// are one read. With several, the reads of a sample are one group, whose memory is taken together:
// samples that each hold a part of the memory and wait for the rest would wait for ever.
void Engine::PlanReads(StepWork& work) {
  std::vector<std::pair<Extent, PieceRef>> pieces;
  pieces.reserve(work.pieces.size());
  std::vector<std::uint32_t> without_reads;
  std::vector<std::uint32_t> resident;
  if (!blocks_.empty()) PrefetchKept(work.plan);
  for (std::uint32_t slot = 0; slot < work.samples.size(); ++slot) {
    if (work.plan.deliveries[slot].block_read != kNoBlockRead) {
      if (AwaitKept(work, slot)) resident.push_back(slot);
      continue;
    }
    if (tiers_ != nullptr && PlanFromTier(work, slot, resident)) continue;
    const std::size_t before = pieces.size();
    Status status;
    for (std::uint32_t field = 0; field < stored_fields_.size() && status.ok(); ++field) {
      const std::size_t index_field = parts_.schema[stored_fields_[field]].index_field;
      const Result<Extent> extent = parts_.index->extent(index_field, work.batch->samples[slot]);
      status = extent.status();
      if (status.ok()) pieces.emplace_back(extent.value(), PieceRef{slot, field});
    }
    if (!status.ok()) {
      pieces.resize(before);
      work.MarkRead(now_ns_);
      SampleFailed(work, slot, std::move(status));
      continue;
    }
    work.samples[slot].pieces_left = static_cast<std::uint32_t>(stored_fields_.size());
    if (stored_fields_.empty()) without_reads.push_back(slot);
    if (stored_fields_.size() > 1) {
      work.lane->to_read.push_back(MakeUnits(work, std::span(pieces).subspan(before)));
      pieces.clear();
    }
  }
  if (!without_reads.empty()) {
    work.MarkRead(now_ns_, without_reads.size());
    SubmitDecodes(work, without_reads);
  }
  SubmitDecodes(work, resident);
  for (ReadUnit* unit : MakeUnits(work, pieces)) work.lane->to_read.push_back({unit});
}

// The reads of `pieces`, which it sorts by place: pieces near each other become one.
std::vector<Engine::ReadUnit*> Engine::MakeUnits(StepWork& work,
                                                 std::span<std::pair<Extent, PieceRef>> pieces) {
  const auto extent_of = [](const auto& piece) -> const Extent& { return piece.first; };
  std::sort(pieces.begin(), pieces.end(),
            [&](const auto& a, const auto& b) { return LiesBefore(extent_of(a), extent_of(b)); });
  std::vector<ReadUnit*> units;
  const CoalesceLimits limits{options_.coalesce_gap_bytes, options_.coalesce_bytes_max};
  Coalesce(
      pieces, limits, extent_of, [this](const auto& piece) { return InPlace(piece); },
      [&](const Extent& extent, const auto& together) {
        units.push_back(MakeUnit(work, extent, together));
      });
  return units;
}

bool Engine::InPlace(const std::pair<Extent, PieceRef>& piece) const {
  return ReadInPlace(parts_.schema[stored_fields_[piece.second.field]], piece.first.range.size);
}

Engine::ReadUnit* Engine::MakeUnit(StepWork& work, const Extent& extent,
                                   std::span<const std::pair<Extent, PieceRef>> pieces) {
  auto unit = std::make_unique<ReadUnit>();
  unit->source = &storage_;
  unit->client = row_reads_.get();
  unit->work = &work;
  unit->extent = extent;
  unit->pieces.reserve(pieces.size());
  for (const auto& [at, ref] : pieces) {
    unit->pieces.push_back(ref);
    work.pieces[ref.slot * stored_fields_.size() + ref.field] = {
        .read = unit.get(), .offset = at.range.offset - extent.range.offset, .size = at.range.size};
  }
  unit->pieces_left = pieces.size();
  if (InPlace(pieces.front())) {
    const PieceRef ref = pieces.front().second;
    unit->room = work.batch->fields[stored_fields_[ref.field]].rows[ref.slot];
    unit->in_row = true;
  }
  return work.units.emplace_back(std::move(unit)).get();
}

// Plans the reads of one sample that stands in for another, ahead of all others: its step is older.
void Engine::PlanSampleReads(StepWork& work, std::uint32_t slot) {
  std::vector<std::pair<Extent, PieceRef>> pieces;
  for (std::uint32_t field = 0; field < stored_fields_.size(); ++field) {
    const BatchField& out = parts_.schema[stored_fields_[field]];
    const Result<Extent> extent = parts_.index->extent(out.index_field, work.batch->samples[slot]);
    if (!extent.ok()) return SampleFailed(work, slot, extent.status());
    pieces.emplace_back(extent.value(), PieceRef{slot, field});
    if (!out.ragged) continue;
    const ByteRange range = extent.value().range;
    const ByteRange room = RowRoom(out, range.size, parts_.store->BufferBytes(range), 0);
    std::span<std::byte>& row = work.batch->fields[stored_fields_[field]].rows[slot];
    // Decoded rows are exactly as long as they have to be; buffers to read into may be longer.
    const bool fits = ReadInPlace(out, range.size)
                          ? IsAligned(row.data()) && row.size() >= room.size
                          : row.size() == room.size;
    if (fits) continue;
    BufferPool& memory = *work.lane->parts.batch_memory;
    std::optional<Buffer> extra = memory.Acquire(room.size);
    // Its step is the oldest: waiting for room may be in vain.
    if (!extra.has_value()) extra = memory.AcquireBeyond(room.size);
    if (!extra.has_value()) {
      return SampleFailed(
          work, slot,
          Status(StatusCode::kResourceExhausted,
                 "a row of " + FormatBytes(room.size) + ": the system has no memory"));
    }
    row = extra->bytes().first(room.size);
    work.batch->extra.push_back(*std::move(extra));
  }
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(pieces.size());
  ++work.samples_unread;
  work.lane->to_read.push_front(MakeUnits(work, pieces));
}

void Engine::IssueReads() {
  std::vector<std::unique_ptr<DecodeTask>> tries;
  std::uint64_t tried_reads = 0;
  std::vector<Fetch*> fetches;
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->without_memory = false;
  while (fetcher_.has_room()) {
    Lane* const lane = NextLaneToRead();
    if (lane == nullptr) break;
    const std::vector<ReadUnit*>& group = lane->to_read.front();
    ReadUnit& first = *group.front();
    // Only of samples with one stored field: others have to wait for the rest of theirs.
    const bool tried =
        stored_fields_.size() == 1 && first.MayBeTried() && first.source->MayReadNow();
    auto memory = Fetcher::Memory::kTaken;
    if (!tried || !first.InOneGo(options_.decode_task_bytes)) {
      fetches.assign(group.begin(), group.end());
      memory = fetcher_.Acquire(fetches, *lane->parts.staging);
    }
    if (memory == Fetcher::Memory::kWait) {  // For what was read to be decoded.
      if (lane->parts.staging == parts_.staging) break;
      lane->without_memory = true;  // Lanes whose memory lies elsewhere go on.
      continue;
    }
    for (ReadUnit* unit : group) {
      ++lane->reads_in_flight;
      unit->issued_ns = now_ns_;
      unit->work->issued_bytes += unit->extent.range.size;
      if (memory == Fetcher::Memory::kNone) {
        fetcher_.Refuse(*unit);
      } else if (tried) {
        fetcher_.Begin(*unit);
        ++tried_reads;
        AddTry(tries, *unit);
      } else {
        fetcher_.Start(*unit, /*first=*/!unit->tried);
      }
    }
    lane->to_read.pop_front();
  }
  fetcher_.Flush();
  if (tries.empty()) return;
  inbox_->BeginWork(tried_reads);
  for (std::unique_ptr<DecodeTask>& task : tries) {
    const std::uint64_t deadline = task->deadline;
    task->work->lane->parts.executor->Submit(deadline, [this, raw = task.release()] {
      ReadNowOrRead(std::unique_ptr<DecodeTask>(raw));
    });
  }
}

bool Engine::ReadUnit::InOneGo(std::uint64_t bytes_max) const {
  return pieces.size() == 1 && extent.range.size <= bytes_max && !outlasts &&
         work->samples[pieces.front().slot].keep == nullptr;
}

// To a task of reads of its step: of more than one where they are small, as SubmitDecodes() does
// it, but so that every thread has some of the reads that may be in flight.
void Engine::AddTry(std::vector<std::unique_ptr<DecodeTask>>& tries, ReadUnit& unit) const {
  auto task = std::find_if(tries.rbegin(), tries.rend(),
                           [&](const auto& each) { return each->work == unit.work; });
  const int threads = unit.work->lane->parts.executor->concurrency();
  const std::uint32_t part = options_.reads_in_flight_max / static_cast<std::uint32_t>(threads);
  if (task == tries.rend() || (*task)->units.size() >= std::clamp(part, 1U, kTriesMax) ||
      (*task)->stored_bytes >= options_.decode_task_bytes) {
    tries.push_back(std::make_unique<DecodeTask>());
    task = tries.rbegin();
    (*task)->work = unit.work;
    (*task)->deadline = unit.work->Deadline(unit.work->issued_bytes - unit.extent.range.size);
  }
  unit.work->samples_tried += unit.pieces.size();
  (*task)->units.push_back(&unit);
  (*task)->stored_bytes += unit.extent.range.size;
}

std::span<std::byte> Engine::DecodeTask::RoomOf(const ReadUnit& unit,
                                                std::span<const BatchField> schema,
                                                std::size_t position) {
  if (!unit.memory().empty()) return unit.memory();
  const std::uint64_t size = unit.extent.range.size;
  const std::span<std::byte> row = work->batch->row(schema, position, unit.pieces.front().slot);
  if (schema[position].codec->is_copy() && row.size() == size) return row;
  return {bytes.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
}

// A task. Bytes that need no device are read and decoded in one go; others take the usual way.
void Engine::ReadNowOrRead(std::unique_ptr<DecodeTask> task) {
  task->stored_bytes = 0;
  std::vector<Fetch*> missed;
  for (ReadUnit* const unit : task->units) {
    const std::span<std::byte> target =
        task->RoomOf(*unit, parts_.schema, stored_fields_.front()).first(unit->extent.range.size);
    const ReadNowAnswer answer =
        stop_.stop_requested() ? ReadNowAnswer::kNotAsked : unit->source->ReadNow(*unit, target);
    if (answer != ReadNowAnswer::kRead) {
      unit->not_held = answer == ReadNowAnswer::kNotHeld;
      task->work->samples_tried -= unit->pieces.size();
      if (!unit->memory().empty()) {
        missed.push_back(unit);
      } else {
        inbox_->Post({.kind = Event::Kind::kMissed, .unit = unit});
      }
    } else if (unit->pieces.size() > 1) {  // Decoding them may be work for several threads.
      task->work->samples_tried -= unit->pieces.size();
      inbox_->Post({.kind = Event::Kind::kFetched, .fetch = unit, .data = target});
    } else {
      SetData(*unit, target);
      task->stored_bytes += target.size();
      task->slots.push_back(unit->pieces.front().slot);
    }
  }
  if (!missed.empty()) ReadFromTask(missed);
  if (task->slots.empty()) return;
  const std::int64_t start_ns = parts_.clock->NowNanos();
  RunDecode(*task);
  task->decode_ns = parts_.clock->NowNanos() - start_ns;
  task->work->samples_tried -= task->slots.size();
  inbox_->Post({.kind = Event::Kind::kDone, .task = std::move(task)});
}

// Reads on a thread that is not the machine's. The answer may come, and be the last, while the
// store is still in Read(): Close() waits for both, for what follows it is the store's destruction.
void Engine::ReadFromTask(std::span<Fetch* const> fetches) {
  inbox_->BeginWork();
  fetcher_.Read(fetches);
  inbox_->EndWork();
}

// The bytes of a unit are there. Where they were read into the batch, its row is where they lie.
void Engine::SetData(ReadUnit& unit, std::span<std::byte> data) const {
  unit.data = data;
  if (!unit.in_row) return;
  const PieceRef ref = unit.pieces.front();
  unit.work->batch->fields[stored_fields_[ref.field]].rows[ref.slot] = data;
}

void Engine::OnRead(ReadUnit& unit, Result<std::span<std::byte>> data) {
  StepWork& work = *unit.work;
  if (data.ok()) {
    Learn(now_ns_ - unit.issued_ns, unit.extent.range.size, work.lane->read_ns_per_byte);
  }
  if (!data.ok()) {
    unit.buffer.Reset();
    const bool joined = unit.pieces.size() > 1 && stored_fields_.size() == 1;
    if (joined && !ended_ && data.status().code() != StatusCode::kCancelled) {
      // One of several samples may be the cause: each alone, so that the others are not lost with
      // it.
      for (const PieceRef ref : unit.pieces) {
        const Piece piece = work.pieces[ref.slot * stored_fields_.size() + ref.field];
        const Extent extent{unit.extent.object,
                            {unit.extent.range.offset + piece.offset, piece.size}};
        const std::pair<Extent, PieceRef> alone(extent, ref);
        work.lane->to_read.push_front({MakeUnit(work, extent, {&alone, 1})});
      }
      return;
    }
  } else {
    SetData(unit, data.value());
  }
  std::vector<std::uint32_t> read;
  for (const PieceRef ref : unit.pieces) {
    SampleWork& sample = work.samples[ref.slot];
    if (!data.ok() && sample.read_error.ok()) sample.read_error = data.status();
    if (--sample.pieces_left > 0) continue;
    work.MarkRead(now_ns_);
    if (sample.read_error.ok()) {
      read.push_back(ref.slot);
    } else {
      SampleFailed(work, ref.slot, std::exchange(sample.read_error, Status()));
    }
  }
  SubmitDecodes(work, read);
}

}  // namespace headrace
