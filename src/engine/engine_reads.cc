// Engine: reads of single samples, from planned to bytes that are there.

#include <algorithm>
#include <string>

#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"

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
  const auto by_place = [](const auto& a, const auto& b) {
    return a.first.object != b.first.object ? a.first.object < b.first.object
                                            : a.first.range.offset < b.first.range.offset;
  };
  std::sort(pieces.begin(), pieces.end(), by_place);
  std::vector<ReadUnit*> units;
  for (std::size_t begin = 0; begin < pieces.size();) {
    const Extent& first = pieces[begin].first;
    std::uint64_t end_offset = first.range.end();
    std::size_t end = begin + 1;
    for (; end < pieces.size(); ++end) {
      const Extent& next = pieces[end].first;
      const std::uint64_t joined = std::max(end_offset, next.range.end());
      if (InPlace(pieces[begin]) || InPlace(pieces[end]) || next.object != first.object ||
          next.range.offset > end_offset + options_.coalesce_gap_bytes ||
          joined - first.range.offset > options_.coalesce_bytes_max) {
        break;
      }
      end_offset = joined;
    }
    units.push_back(MakeUnit(work, pieces.subspan(begin, end - begin)));
    begin = end;
  }
  return units;
}

bool Engine::InPlace(const std::pair<Extent, PieceRef>& piece) const {
  return ReadInPlace(parts_.schema[stored_fields_[piece.second.field]], piece.first.range.size);
}

Engine::ReadUnit* Engine::MakeUnit(StepWork& work,
                                   std::span<const std::pair<Extent, PieceRef>> pieces) {
  auto unit = std::make_unique<ReadUnit>();
  unit->work = &work;
  unit->extent = pieces.front().first;
  unit->pieces.reserve(pieces.size());
  std::uint64_t end = unit->extent.range.end();
  for (const auto& [extent, ref] : pieces) {
    end = std::max(end, extent.range.end());
    unit->pieces.push_back(ref);
    work.pieces[ref.slot * stored_fields_.size() + ref.field] = {
        .read = unit.get(),
        .offset = extent.range.offset - unit->extent.range.offset,
        .size = extent.range.size};
  }
  unit->extent.range.size = end - unit->extent.range.offset;
  unit->pieces_left = pieces.size();
  if (InPlace(pieces.front())) {
    const PieceRef ref = pieces.front().second;
    unit->in_place = work.batch->fields[stored_fields_[ref.field]].rows[ref.slot];
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

// Takes the memory of all of `group`, or of none: from the budget, or beyond it. False: not now.
bool Engine::AcquireStaging(const std::vector<ReadUnit*>& group, bool beyond) {
  BufferPool& staging = *group.front()->work->lane->parts.staging;
  for (ReadUnit* unit : group) {
    if (!unit->in_place.empty()) continue;
    const std::size_t bytes = unit->entry != nullptr
                                  ? unit->entry->tier()->BufferBytes(*unit->entry)
                                  : parts_.store->BufferBytes(unit->extent.range);
    std::optional<Buffer> buffer = beyond ? staging.AcquireBeyond(bytes) : staging.Acquire(bytes);
    if (buffer.has_value()) {
      unit->buffer = *std::move(buffer);
      continue;
    }
    for (ReadUnit* taken : group) taken->buffer.Reset();
    return false;
  }
  return true;
}

void Engine::IssueReads() {
  std::vector<ReadRequest> requests;
  std::vector<std::unique_ptr<DecodeTask>> tries;
  std::vector<ReadUnit*> entries;
  std::uint64_t refused = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->without_memory = false;
  while (stats_.reads_in_flight < options_.reads_in_flight_max) {
    Lane* const lane = NextLaneToRead();
    if (lane == nullptr) break;
    const std::vector<ReadUnit*>& group = lane->to_read.front();
    const ReadUnit& first = *group.front();
    // Only of samples with one stored field: others have to wait for the rest of theirs.
    const bool tried =
        stored_fields_.size() == 1 && first.MayBeTried() && parts_.store->MayReadNow();
    // Without memory it waits for what was read to be decoded. When all is free and not enough, it
    // would wait for ever: then it goes beyond.
    bool acquired = (tried && first.InOneGo(options_.decode_task_bytes)) ||
                    AcquireStaging(group, /*beyond=*/false);
    if (!acquired) {
      const BufferPool::Stats pool = lane->parts.staging->stats();
      if (pool.used_bytes != 0 || pool.beyond_bytes != 0) {
        if (lane->parts.staging == parts_.staging) break;
        lane->without_memory = true;  // Lanes whose memory lies elsewhere go on.
        continue;
      }
      acquired = AcquireStaging(group, /*beyond=*/true);
    }
    for (ReadUnit* unit : group) {
      ++stats_.reads_in_flight;
      ++lane->reads_in_flight;
      unit->issued_ns = now_ns_;
      unit->work->issued_bytes += unit->extent.range.size;
      if (unit->entry == nullptr && !unit->tried) {
        ++stats_.reads;
        stats_.read_bytes += unit->extent.range.size;
      }
      if (!acquired) {
        ++refused;
        inbox_->Post({.kind = Event::Kind::kRead,
                      .unit = unit,
                      .data = Status(StatusCode::kResourceExhausted,
                                     "reading " + FormatBytes(unit->extent.range.size) +
                                         ": the system has no memory")});
      } else if (unit->entry != nullptr) {
        entries.push_back(unit);
      } else if (tried) {
        AddTry(tries, *unit);
      } else {
        requests.push_back(RequestOf(*unit));
      }
    }
    lane->to_read.pop_front();
  }
  std::uint64_t tried_reads = 0;
  for (const auto& task : tries) tried_reads += task->units.size();
  inbox_->BeginWork(requests.size() + entries.size() + refused + tried_reads);
  for (ReadUnit* const unit : entries) ReadEntry(*unit);
  if (!requests.empty()) parts_.store->Read(std::move(requests), stop_.get_token());
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
  if (!unit.in_place.empty()) return unit.in_place;
  if (!unit.buffer.bytes().empty()) return unit.buffer.bytes();
  const std::uint64_t size = unit.extent.range.size;
  const std::span<std::byte> row = work->batch->row(schema, position, unit.pieces.front().slot);
  if (schema[position].codec->is_copy() && row.size() == size) return row;
  return {bytes.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
}

ReadRequest Engine::RequestOf(ReadUnit& unit) {
  return {.extent = unit.extent,
          .buffer = unit.in_place.empty() ? unit.buffer.bytes() : unit.in_place,
          .done =
              [this, &unit](Result<std::span<std::byte>> data) {
                inbox_->Post({.kind = Event::Kind::kRead, .unit = &unit, .data = std::move(data)});
              },
          .looked = unit.looked};
}

// A task. Bytes that need no device are read and decoded in one go; others take the usual way.
void Engine::ReadNowOrRead(std::unique_ptr<DecodeTask> task) {
  task->stored_bytes = 0;
  std::vector<ReadRequest> requests;
  for (ReadUnit* const unit : task->units) {
    const std::span<std::byte> target =
        task->RoomOf(*unit, parts_.schema, stored_fields_.front()).first(unit->extent.range.size);
    const ReadNowAnswer answer = stop_.stop_requested()
                                     ? ReadNowAnswer::kNotAsked
                                     : parts_.store->ReadNow(unit->extent, target);
    if (answer != ReadNowAnswer::kRead) {
      unit->looked = answer == ReadNowAnswer::kNotHeld;
      task->work->samples_tried -= unit->pieces.size();
      if (!unit->in_place.empty() || !unit->buffer.bytes().empty()) {
        requests.push_back(RequestOf(*unit));
      } else {
        inbox_->Post({.kind = Event::Kind::kMissed, .unit = unit});
      }
    } else if (unit->pieces.size() > 1) {  // Decoding them may be work for several threads.
      task->work->samples_tried -= unit->pieces.size();
      inbox_->Post({.kind = Event::Kind::kRead, .unit = unit, .data = target});
    } else {
      SetData(*unit, target);
      task->stored_bytes += target.size();
      task->slots.push_back(unit->pieces.front().slot);
    }
  }
  if (!requests.empty()) ReadFromTask(std::move(requests));
  if (task->slots.empty()) return;
  const std::int64_t start_ns = parts_.clock->NowNanos();
  RunDecode(*task);
  task->decode_ns = parts_.clock->NowNanos() - start_ns;
  task->work->samples_tried -= task->slots.size();
  inbox_->Post({.kind = Event::Kind::kDone, .task = std::move(task)});
}

// Reads on a thread that is not the machine's. The answer may come, and be the last, while the
// store is still in Read(): Close() waits for both, for what follows it is the store's destruction.
void Engine::ReadFromTask(std::vector<ReadRequest> requests) {
  inbox_->BeginWork();
  parts_.store->Read(std::move(requests), stop_.get_token());
  inbox_->EndWork();
}

// The bytes of a unit are there. Where they were read into the batch, its row is where they lie.
void Engine::SetData(ReadUnit& unit, std::span<std::byte> data) const {
  unit.data = data;
  if (unit.in_place.empty()) return;
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
        work.lane->to_read.push_front({MakeUnit(work, {&alone, 1})});
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
