#include "engine/rows/row_reader.h"

#include <algorithm>
#include <utility>

#include "engine/batch/row_rooms.h"
#include "fetch/coalesce.h"
#include "headrace/batch.h"

namespace headrace {
namespace {

// Small reads that one task tries, at most.
constexpr std::uint32_t kTriesMax = 16;

}  // namespace

RowReads RowReader::MakeReads(StepWork& work, std::span<Piece> pieces) {
  const auto extent_of = [](const Piece& piece) -> const Extent& { return piece.first; };
  std::sort(pieces.begin(), pieces.end(),
            [&](const Piece& a, const Piece& b) { return LiesBefore(extent_of(a), extent_of(b)); });
  RowReads reads;
  Coalesce(
      pieces, loop_.options.row_limits(), extent_of,
      [this](const Piece& piece) { return InPlace(piece); },
      [](const Piece& a, const Piece& b) { return a.second.slot == b.second.slot; },
      [&](const Extent& extent, std::span<const Piece> together) {
        reads.push_back(MakeRead(work, extent, together));
      });
  return reads;
}

bool RowReader::InPlace(const Piece& piece) const {
  return ReadInPlace(loop_.fields[piece.second.field], piece.first.range.size);
}

RowRead* RowReader::MakeRead(StepWork& work, const Extent& extent, std::span<const Piece> pieces) {
  auto read = std::make_unique<RowRead>();
  read->client = this;
  read->from = extent;
  read->work = &work;
  read->pieces.reserve(pieces.size());
  for (const auto& [at, ref] : pieces) {
    read->pieces.push_back(ref);
    work.pieces[ref.slot * loop_.fields.size() + ref.field] = {
        .read = read.get(), .offset = at.range.offset - extent.range.offset, .size = at.range.size};
  }
  read->pieces_left = pieces.size();
  if (InPlace(pieces.front())) {
    const PieceRef ref = pieces.front().second;
    read->room = work.batch->fields[loop_.fields.position(ref.field)].rows[ref.slot];
  }
  return work.reads.emplace_back(std::move(read)).get();
}

RowRead* RowReader::MakeEntryRead(StepWork& work, std::uint32_t slot) {
  const Tier::EntryRef& entry = work.samples[slot].chain.entry();
  RowRead& read = MakeSampleRead(work, slot, &entry);
  read.checked = true;
  return &read;
}

// What came is verified against the index, as what comes from storage is.
RowRead* RowReader::MakeNodeRead(StepWork& work, std::uint32_t slot, std::uint64_t bytes) {
  return &MakeSampleRead(work, slot,
                         SampleAtNode{.nodes = *work.samples[slot].chain.nodes(),
                                      .sample = work.batch->samples[slot],
                                      .bytes = bytes});
}

// A read of all stored fields of a row, one after the other.
RowRead& RowReader::MakeSampleRead(StepWork& work, std::uint32_t slot, const FetchFrom& from) {
  auto read = std::make_unique<RowRead>();
  read->client = this;
  read->from = from;
  read->deadline = work.deadline;
  read->work = &work;
  for (std::uint32_t field = 0; field < loop_.fields.size(); ++field) {
    read->pieces.push_back({slot, field});
    work.pieces[slot * loop_.fields.size() + field].read = read.get();
  }
  read->pieces_left = read->pieces.size();
  work.samples[slot].pieces_left = static_cast<std::uint32_t>(read->pieces.size());
  return *work.reads.emplace_back(std::move(read));
}

void RowReader::Issue() {
  if (queues_.nothing_to_read()) return;
  Fetcher& fetcher = loop_.fetcher;
  std::vector<std::unique_ptr<DecodeTask>> tries;
  std::uint64_t tried_reads = 0;
  std::vector<Fetch*> fetches;
  queues_.ResumeLanes();
  while (const std::optional<WaitingReads> next = NextReads()) {
    const RowReads& reads = *next->reads;
    RowRead& first = *reads.front();
    StepWork& work = *first.work;
    const bool tried = MayBeTried(first);
    auto memory = Fetcher::Memory::kTaken;
    if (!tried || !InOneGo(first)) {
      BufferPool& staging = *queues_.parts(work).staging;
      fetches.assign(reads.begin(), reads.end());
      const std::uint64_t kept = &staging == &loop_.staging ? loop_.KeptBytes(first) : 0;
      memory = fetcher.Acquire(fetches, staging, {.keep_bytes = kept});
      if (memory == Fetcher::Memory::kWait) {  // For what was read to be decoded.
        if (&staging == &loop_.staging) break;
        queues_.HoldLane(work);  // Lanes whose memory lies elsewhere go on.
        continue;
      }
    }
    for (RowRead* const read : queues_.TakeReads(*next)) {
      if (memory == Fetcher::Memory::kNone || !tried) {
        Start(*read, memory);
        continue;
      }
      CountIssued(*read);
      fetcher.Begin(*read);
      read->counted = true;
      ++tried_reads;
      AddTry(tries, *read);
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

void RowReader::CountIssued(RowRead& read) const {
  read.issued_ns = loop_.now_ns;
  read.work->issued_bytes += read.bytes();
}

void RowReader::Start(RowRead& read, Fetcher::Memory memory) const {
  CountIssued(read);
  if (memory == Fetcher::Memory::kNone) {
    loop_.fetcher.Refuse(read);
  } else {
    loop_.fetcher.Start(read, /*first=*/!read.counted);
  }
}

std::optional<Fetcher::Memory> RowReader::IssueNow(StepWork& work, std::uint32_t slot) {
  const auto* const read =
      static_cast<const RowRead*>(work.pieces[slot * loop_.fields.size()].read);
  if (read == nullptr || !read->in_storage()) return std::nullopt;
  const std::optional<WaitingReads> together = queues_.ReadsWith(*read);
  if (!together.has_value()) return std::nullopt;
  const std::vector<Fetch*> fetches(together->reads->begin(), together->reads->end());
  const auto memory = loop_.fetcher.Acquire(fetches, *queues_.parts(work).staging, {.any = true});
  if (memory == Fetcher::Memory::kWait) return memory;
  for (RowRead* const taken : queues_.TakeReads(*together)) Start(*taken, memory);
  return memory;
}

// The reads that are due next; nothing: there are none, or none may be in flight now.
std::optional<WaitingReads> RowReader::NextReads() const {
  const std::optional<WaitingReads> next = queues_.NextReads();
  if (!next.has_value()) return next;
  const RowRead& first = *next->reads->front();
  if (first.at_node()) return next;
  const StepWork& work = *first.work;
  if (tiers_ != nullptr) tiers_->BringBefore(work.Deadline(work.issued_bytes));
  if (!loop_.fetcher.has_room()) return std::nullopt;
  return tiers_ == nullptr ? next : queues_.NextReads();  // What was brought may have been next.
}

// Only of samples with one stored field: others have to wait for the rest of theirs.
bool RowReader::MayBeTried(const RowRead& read) const {
  return loop_.fields.size() == 1 && read.in_storage() && read.bytes() > 0 && !read.tried &&
         loop_.storage.MayReadNow();
}

// Whether a try needs no staging memory: a small sample that nobody needs once it is decoded.
bool RowReader::InOneGo(const RowRead& read) const {
  return read.pieces.size() == 1 && read.bytes() <= loop_.options.decode_task_bytes &&
         !read.outlasts && read.work->samples[read.pieces.front().slot].insert_into == nullptr;
}

// To a task of reads of its step: of more than one where they are small, as decodes are, but so
// that every thread has some of the reads that may be in flight.
void RowReader::AddTry(std::vector<std::unique_ptr<DecodeTask>>& tries, RowRead& read) const {
  auto task = std::find_if(tries.rbegin(), tries.rend(),
                           [&](const auto& each) { return each->work == read.work; });
  const int threads = queues_.parts(*read.work).executor->concurrency();
  const std::uint32_t part =
      loop_.options.reads_in_flight_max / static_cast<std::uint32_t>(threads);
  if (task == tries.rend() || (*task)->reads.size() >= std::clamp(part, 1U, kTriesMax) ||
      (*task)->stored_bytes >= loop_.options.decode_task_bytes) {
    tries.push_back(std::make_unique<DecodeTask>());
    task = tries.rbegin();
    (*task)->work = read.work;
    (*task)->deadline = read.work->Deadline(read.work->issued_bytes - read.bytes());
  }
  read.work->samples_tried += read.pieces.size();
  (*task)->reads.push_back(&read);
  (*task)->stored_bytes += read.bytes();
}

// Where to try to read to: without staging memory the row itself, if that holds what is stored, or
// memory of the task's.
std::span<std::byte> RowReader::RoomOf(DecodeTask& task, const RowRead& read) const {
  const std::uint64_t size = read.bytes();
  if (!read.memory().empty()) return read.memory().first(size);
  const std::span<std::byte> row = task.work->batch->row(
      loop_.fields.schema(), loop_.fields.position(0), read.pieces.front().slot);
  if (IsCopy(loop_.fields[0]) && row.size() == size) return row;
  return {task.bytes.emplace_back(std::make_unique_for_overwrite<std::byte[]>(size)).get(), size};
}

// A task. Bytes that need no device are read and decoded in one go; others take the usual way.
void RowReader::ReadNowOrRead(std::unique_ptr<DecodeTask> task) {
  task->stored_bytes = 0;
  std::vector<Fetch*> missed;
  for (RowRead* const read : task->reads) {
    const std::span<std::byte> target = RoomOf(*task, *read);
    if (!loop_.fetcher.ReadNow(*read, target)) {
      task->work->samples_tried -= read->pieces.size();
      if (!read->memory().empty()) {
        missed.push_back(read);
        continue;
      }
      loop_.Post([this, read] {  // It is read like others, before what waits.
        read->tried = true;
        ReadAgain(*read);
      });
    } else if (read->pieces.size() > 1) {  // Decoding them may be work for several threads.
      task->work->samples_tried -= read->pieces.size();
      loop_.inbox.Post({.fetch = read, .data = target});
    } else {
      SetData(*read, target);
      task->stored_bytes += target.size();
      task->slots.push_back(read->pieces.front().slot);
    }
  }
  if (!missed.empty()) loop_.ReadFromTask(missed);
  if (task->slots.empty()) return;
  const std::size_t count = task->slots.size();
  client_.DecodeNow(*task);
  task->work->samples_tried -= count;
  loop_.Post([this, raw = task.release()] { OnTried(*std::unique_ptr<DecodeTask>(raw)); }, count);
}

// The bytes of a read are there. Where they were read into the batch, its row is where they lie.
void RowReader::SetData(RowRead& read, std::span<std::byte> data) const {
  read.data = data;
  if (read.room.empty()) return;
  const PieceRef ref = read.pieces.front();
  read.work->batch->fields[loop_.fields.position(ref.field)].rows[ref.slot] = data;
}

void RowReader::OnFetched(Fetch& fetch, Result<std::span<std::byte>> data) {
  auto& read = static_cast<RowRead&>(fetch);
  StepWork& work = *read.work;
  queues_.EndReads(work);
  if (data.ok()) {
    queues_.LearnRead(read, loop_.now_ns - read.issued_ns);
    SetData(read, data.value());
  } else {
    read.buffer.Reset();
    const bool joined = read.pieces.size() > 1 && loop_.fields.size() == 1;
    if (joined && !loop_.ended && data.status().code() != StatusCode::kCancelled) {
      // One of several samples may be the cause: each alone, so that the others are not lost with
      // it.
      for (const PieceRef ref : read.pieces) {
        const StoredPiece at = work.pieces[ref.slot * loop_.fields.size() + ref.field];
        const Extent& joint = read.extent();
        const Extent extent{joint.object, {joint.range.offset + at.offset, at.size}};
        const Piece alone(extent, ref);
        queues_.AddReads(work, {MakeRead(work, extent, {&alone, 1})}, /*early=*/true);
      }
      return;
    }
  }
  std::vector<std::uint32_t> complete;
  for (const PieceRef ref : read.pieces) {
    SampleWork& sample = work.samples[ref.slot];
    if (!data.ok() && sample.read_error.ok()) sample.read_error = data.status();
    if (--sample.pieces_left > 0) continue;
    work.MarkRead(loop_.now_ns);
    if (sample.read_error.ok()) {
      complete.push_back(ref.slot);
    } else {
      client_.OnReadFailed(work, ref.slot, std::exchange(sample.read_error, Status()));
    }
  }
  if (!complete.empty()) client_.OnRead(work, complete);
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
    RowRead& read = static_cast<RowRead&>(*task.work->pieces[large.first].read);
    if (!read.memory().empty()) {
      stay.push_back(large);
      continue;
    }
    read.outlasts = true;
    ReadAgain(read);
    std::erase(task.slots, large.first);
  }
  task.large = std::move(stay);
}

// A read in flight begins anew, ahead of others.
void RowReader::ReadAgain(RowRead& read) {
  StepWork& work = *read.work;
  loop_.fetcher.Finish();
  queues_.EndReads(work);
  work.issued_bytes -= read.bytes();
  if (!loop_.ended) queues_.AddReads(work, {&read}, /*early=*/true);
}

}  // namespace headrace
