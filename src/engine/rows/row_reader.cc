#include "engine/rows/row_reader.h"

#include <algorithm>
#include <utility>

#include "engine/batch/batch.h"
#include "fetch/coalesce.h"

namespace headrace {
namespace {

// Small reads that one task tries, at most.
constexpr std::uint32_t kTriesMax = 16;

}  // namespace

RowReader::Reads RowReader::MakeReads(StepWork& work, std::span<Piece> pieces) {
  const auto extent_of = [](const Piece& piece) -> const Extent& { return piece.first; };
  std::sort(pieces.begin(), pieces.end(),
            [&](const Piece& a, const Piece& b) { return LiesBefore(extent_of(a), extent_of(b)); });
  const CoalesceLimits limits{.gap_bytes = loop_.options.coalesce_gap_bytes,
                              .bytes_max = loop_.options.coalesce_bytes_max};
  Reads reads;
  Coalesce(
      pieces, limits, extent_of, [this](const Piece& piece) { return InPlace(piece); },
      [&](const Extent& extent, std::span<const Piece> together) {
        reads.push_back(MakeUnit(work, extent, together));
      });
  return reads;
}

bool RowReader::InPlace(const Piece& piece) const {
  return ReadInPlace(loop_.fields[piece.second.field], piece.first.range.size);
}

ReadUnit* RowReader::MakeUnit(StepWork& work, const Extent& extent, std::span<const Piece> pieces) {
  auto unit = std::make_unique<ReadUnit>();
  unit->source = &loop_.storage;
  unit->client = this;
  unit->work = &work;
  unit->extent = extent;
  unit->pieces.reserve(pieces.size());
  for (const auto& [at, ref] : pieces) {
    unit->pieces.push_back(ref);
    work.pieces[ref.slot * loop_.fields.size() + ref.field] = {
        .read = unit.get(), .offset = at.range.offset - extent.range.offset, .size = at.range.size};
  }
  unit->pieces_left = pieces.size();
  if (InPlace(pieces.front())) {
    const PieceRef ref = pieces.front().second;
    unit->room = work.batch->fields[loop_.fields.position(ref.field)].rows[ref.slot];
  }
  return work.units.emplace_back(std::move(unit)).get();
}

ReadUnit* RowReader::MakeEntryRead(StepWork& work, std::uint32_t slot) {
  auto unit = std::make_unique<ReadUnit>();
  unit->source = &loop_.entries;
  unit->client = this;
  unit->deadline = work.deadline;
  unit->work = &work;
  unit->entry = &work.samples[slot].entry;
  unit->checked = true;
  unit->extent.range.size = unit->entry->bytes();
  for (std::uint32_t field = 0; field < loop_.fields.size(); ++field) {
    unit->pieces.push_back({slot, field});
    work.pieces[slot * loop_.fields.size() + field].read = unit.get();
  }
  unit->pieces_left = unit->pieces.size();
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(unit->pieces.size());
  return work.units.emplace_back(std::move(unit)).get();
}

void RowReader::Issue() {
  if (queues_.nothing_to_read()) return;
  Fetcher& fetcher = loop_.fetcher;
  std::vector<std::unique_ptr<DecodeTask>> tries;
  std::uint64_t tried_reads = 0;
  std::vector<Fetch*> fetches;
  queues_.ResumeLanes();
  while (fetcher.has_room()) {
    const Reads* const next = queues_.NextReads();
    if (next == nullptr) break;
    ReadUnit& first = *next->front();
    StepWork& work = *first.work;
    const bool tried = MayBeTried(first);
    auto memory = Fetcher::Memory::kTaken;
    if (!tried || !InOneGo(first)) {
      BufferPool& staging = *queues_.parts(work).staging;
      fetches.assign(next->begin(), next->end());
      memory = fetcher.Acquire(fetches, staging);
      if (memory == Fetcher::Memory::kWait) {  // For what was read to be decoded.
        if (&staging == &loop_.staging) break;
        queues_.HoldLane(work);  // Lanes whose memory lies elsewhere go on.
        continue;
      }
    }
    for (ReadUnit* const unit : queues_.TakeReads(work)) {
      unit->issued_ns = loop_.now_ns;
      work.issued_bytes += unit->extent.range.size;
      if (memory == Fetcher::Memory::kNone) {
        fetcher.Refuse(*unit);
      } else if (tried) {
        fetcher.Begin(*unit);
        unit->counted = true;
        ++tried_reads;
        AddTry(tries, *unit);
      } else {
        fetcher.Start(*unit, /*first=*/!unit->counted);
      }
    }
  }
  fetcher.Flush();
  if (tries.empty()) return;
  loop_.inbox.BeginWork(tried_reads);
  for (std::unique_ptr<DecodeTask>& task : tries) {
    const std::uint64_t deadline = task->deadline;
    Executor& executor = *queues_.parts(*task->work).executor;
    executor.Submit(deadline, [this, raw = task.release()] {
      ReadNowOrRead(std::unique_ptr<DecodeTask>(raw));
    });
  }
}

// Only of samples with one stored field: others have to wait for the rest of theirs.
bool RowReader::MayBeTried(const ReadUnit& unit) const {
  return loop_.fields.size() == 1 && unit.entry == nullptr && unit.extent.range.size > 0 &&
         !unit.tried && unit.source->MayReadNow();
}

// Whether a try needs no staging memory: a small sample that nobody needs once it is decoded.
bool RowReader::InOneGo(const ReadUnit& unit) const {
  return unit.pieces.size() == 1 && unit.extent.range.size <= loop_.options.decode_task_bytes &&
         !unit.outlasts && unit.work->samples[unit.pieces.front().slot].insert_into == nullptr;
}

// To a task of reads of its step: of more than one where they are small, as decodes are, but so
// that every thread has some of the reads that may be in flight.
void RowReader::AddTry(std::vector<std::unique_ptr<DecodeTask>>& tries, ReadUnit& unit) const {
  auto task = std::find_if(tries.rbegin(), tries.rend(),
                           [&](const auto& each) { return each->work == unit.work; });
  const int threads = queues_.parts(*unit.work).executor->concurrency();
  const std::uint32_t part =
      loop_.options.reads_in_flight_max / static_cast<std::uint32_t>(threads);
  if (task == tries.rend() || (*task)->units.size() >= std::clamp(part, 1U, kTriesMax) ||
      (*task)->stored_bytes >= loop_.options.decode_task_bytes) {
    tries.push_back(std::make_unique<DecodeTask>());
    task = tries.rbegin();
    (*task)->work = unit.work;
    (*task)->deadline = unit.work->Deadline(unit.work->issued_bytes - unit.extent.range.size);
  }
  unit.work->samples_tried += unit.pieces.size();
  (*task)->units.push_back(&unit);
  (*task)->stored_bytes += unit.extent.range.size;
}

// Where to try to read to: without staging memory the row itself, if that holds what is stored, or
// memory of the task's.
std::span<std::byte> RowReader::RoomOf(DecodeTask& task, const ReadUnit& unit) const {
  const std::uint64_t size = unit.extent.range.size;
  if (!unit.memory().empty()) return unit.memory().first(size);
  const std::span<std::byte> row = task.work->batch->row(
      loop_.fields.schema(), loop_.fields.position(0), unit.pieces.front().slot);
  if (loop_.fields[0].codec->is_copy() && row.size() == size) return row;
  return {task.bytes.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
}

// A task. Bytes that need no device are read and decoded in one go; others take the usual way.
void RowReader::ReadNowOrRead(std::unique_ptr<DecodeTask> task) {
  task->stored_bytes = 0;
  std::vector<Fetch*> missed;
  for (ReadUnit* const unit : task->units) {
    const std::span<std::byte> target = RoomOf(*task, *unit);
    if (!loop_.fetcher.ReadNow(*unit, target)) {
      task->work->samples_tried -= unit->pieces.size();
      if (!unit->memory().empty()) {
        missed.push_back(unit);
        continue;
      }
      loop_.Post([this, unit] {  // It is read like others, before what waits.
        unit->tried = true;
        ReadAgain(*unit);
      });
    } else if (unit->pieces.size() > 1) {  // Decoding them may be work for several threads.
      task->work->samples_tried -= unit->pieces.size();
      loop_.inbox.Post({.fetch = unit, .data = target});
    } else {
      SetData(*unit, target);
      task->stored_bytes += target.size();
      task->slots.push_back(unit->pieces.front().slot);
    }
  }
  if (!missed.empty()) loop_.ReadFromTask(missed);
  if (task->slots.empty()) return;
  const std::size_t count = task->slots.size();
  client_.DecodeNow(*task);
  task->work->samples_tried -= count;
  loop_.Post([this, raw = task.release()] { OnTried(*std::unique_ptr<DecodeTask>(raw)); }, count);
}

// The bytes of a unit are there. Where they were read into the batch, its row is where they lie.
void RowReader::SetData(ReadUnit& unit, std::span<std::byte> data) const {
  unit.data = data;
  if (unit.room.empty()) return;
  const PieceRef ref = unit.pieces.front();
  unit.work->batch->fields[loop_.fields.position(ref.field)].rows[ref.slot] = data;
}

void RowReader::OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) {
  auto& unit = static_cast<ReadUnit&>(fetch);
  StepWork& work = *unit.work;
  queues_.EndReads(work);
  if (data.ok()) {
    queues_.LearnRead(work, loop_.now_ns - unit.issued_ns, unit.extent.range.size);
    SetData(unit, data.value());
  } else {
    unit.buffer.Reset();
    const bool joined = unit.pieces.size() > 1 && loop_.fields.size() == 1;
    if (joined && !loop_.ended && data.status().code() != StatusCode::kCancelled) {
      // One of several samples may be the cause: each alone, so that the others are not lost with
      // it.
      for (const PieceRef ref : unit.pieces) {
        const StoredPiece at = work.pieces[ref.slot * loop_.fields.size() + ref.field];
        const Extent extent{unit.extent.object, {unit.extent.range.offset + at.offset, at.size}};
        const Piece alone(extent, ref);
        queues_.AddReads(work, {MakeUnit(work, extent, {&alone, 1})}, /*early=*/true);
      }
      return;
    }
  }
  std::vector<std::uint32_t> read;
  for (const PieceRef ref : unit.pieces) {
    SampleWork& sample = work.samples[ref.slot];
    if (!data.ok() && sample.read_error.ok()) sample.read_error = data.status();
    if (--sample.pieces_left > 0) continue;
    work.MarkRead(loop_.now_ns);
    if (sample.read_error.ok()) {
      read.push_back(ref.slot);
    } else {
      client_.OnReadFailed(work, ref.slot, std::exchange(sample.read_error, Status()));
    }
  }
  if (!read.empty()) client_.OnRead(work, read);
}

// What a task read is decoded.
void RowReader::OnTried(DecodeTask& task) {
  StepWork& work = *task.work;
  ReadLargeAgain(task);
  loop_.fetcher.Finish(task.slots.size());
  queues_.EndReads(work, static_cast<std::uint32_t>(task.slots.size()));
  work.MarkRead(loop_.now_ns, task.slots.size());
  for (const std::uint32_t slot : task.slots) --work.samples[slot].pieces_left;
  client_.OnDecoded(task);
}

// Of the samples left for later, those whose bytes are lost when the task ends are read again, into
// staging memory.
void RowReader::ReadLargeAgain(DecodeTask& task) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> stay;
  for (const auto& large : task.large) {
    ReadUnit& unit = static_cast<ReadUnit&>(*task.work->pieces[large.first].read);
    if (!unit.memory().empty()) {
      stay.push_back(large);
      continue;
    }
    unit.outlasts = true;
    ReadAgain(unit);
    std::erase(task.slots, large.first);
  }
  task.large = std::move(stay);
}

// A read in flight begins anew, ahead of others.
void RowReader::ReadAgain(ReadUnit& unit) {
  StepWork& work = *unit.work;
  loop_.fetcher.Finish();
  queues_.EndReads(work);
  work.issued_bytes -= unit.extent.range.size;
  if (!loop_.ended) queues_.AddReads(work, {&unit}, /*early=*/true);
}

}  // namespace headrace
