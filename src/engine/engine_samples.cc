// Engine: the way of a sample, from planned read to decoded row.

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "base/prng.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/engine_work.h"

namespace headrace {
namespace {

// Samples in cells that are fetched while others are decoded: enough to hide memory's latency.
constexpr std::size_t kPrefetchAhead = 8;

bool IsAligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % kBufferAlignment == 0;
}

// Whether an error is one of the stored bytes, and not of this process: of memory, descriptors, an
// end. Others must not decide which sample is delivered.
bool IsOfTheSample(StatusCode code) {
  switch (code) {
    case StatusCode::kDataLoss:
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kUnavailable:  // What storage still says after every retry.
      return true;
    default:
      return false;
  }
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
    if (work.plan.deliveries[slot].block_read != kNoBlockRead && !stored_fields_.empty()) {
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
        .unit = unit.get(),
        .offset = extent.range.offset - unit->extent.range.offset,
        .size = extent.range.size};
  }
  unit->extent.range.size = end - unit->extent.range.offset;
  unit->pieces_left = pieces.size();
  if (InPlace(pieces.front())) {
    const PieceRef ref = pieces.front().second;
    unit->in_place = work.batch->fields[stored_fields_[ref.field]].rows[ref.slot];
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
    std::optional<Buffer> extra = work.lane->parts.batch_memory->AcquireBeyond(room.size);
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
  std::vector<ReadUnit*> tries;
  std::vector<ReadUnit*> entries;
  std::uint64_t refused = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->without_memory = false;
  while (stats_.reads_in_flight < options_.reads_in_flight_max) {
    Lane* const lane = NextLaneToRead();
    if (lane == nullptr) break;
    const std::vector<ReadUnit*>& group = lane->to_read.front();
    // Without memory it waits for what was read to be decoded. When all is free and not enough, it
    // would wait for ever: then it goes beyond.
    bool acquired = AcquireStaging(group, /*beyond=*/false);
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
      if (!acquired) {
        ++refused;
        Post({.kind = Event::Kind::kRead,
              .unit = unit,
              .data = Status(StatusCode::kResourceExhausted,
                             "reading " + FormatBytes(unit->extent.range.size) +
                                 ": the system has no memory")});
        continue;
      }
      if (unit->entry != nullptr) {
        entries.push_back(unit);
        continue;
      }
      ++stats_.reads;
      stats_.read_bytes += unit->extent.range.size;
      // Only of samples with one stored field: others have to wait for the rest of theirs.
      if (stored_fields_.size() == 1 && unit->extent.range.size > 0 && parts_.store->MayReadNow()) {
        tries.push_back(unit);
      } else {
        requests.push_back(RequestOf(*unit));
      }
    }
    lane->to_read.pop_front();
  }
  {
    MutexLock lock(inbox_mutex_);
    in_flight_ += requests.size() + tries.size() + entries.size() + refused;
  }
  for (ReadUnit* const unit : entries) ReadEntry(*unit);
  if (!requests.empty()) parts_.store->Read(std::move(requests), stop_.get_token());
  for (ReadUnit* const unit : tries) {
    unit->work->lane->parts.executor->Submit(unit->work->deadline,
                                             [this, unit] { ReadNowOrRead(*unit); });
  }
}

ReadRequest Engine::RequestOf(ReadUnit& unit) {
  return {.extent = unit.extent,
          .buffer = unit.in_place.empty() ? unit.buffer.bytes() : unit.in_place,
          .done = [this, &unit](Result<std::span<std::byte>> data) {
            Post({.kind = Event::Kind::kRead, .unit = &unit, .data = std::move(data)});
          }};
}

// A task. Bytes that need no device are read and decoded in one go, on the thread that then has
// them in its cache; others take the usual way.
void Engine::ReadNowOrRead(ReadUnit& unit) {
  if (!stop_.stop_requested() && ReadAndDecodeNow(unit)) return;
  ReadFromTask(RequestOf(unit));
}

// Reads on a thread that is not the machine's. The answer may come, and be the last, while the
// store is still in Read(): Close() waits for both, for what follows it is the store's destruction.
void Engine::ReadFromTask(ReadRequest request) {
  {
    MutexLock lock(inbox_mutex_);
    ++in_flight_;
  }
  std::vector<ReadRequest> requests;
  requests.push_back(std::move(request));
  requests.back().looked = true;
  parts_.store->Read(std::move(requests), stop_.get_token());
  MutexLock lock(inbox_mutex_);
  if (--in_flight_ == 0) idle_.NotifyAll();
}

bool Engine::ReadAndDecodeNow(ReadUnit& unit) {
  const std::int64_t start_ns = parts_.clock->NowNanos();
  const std::uint64_t size = unit.extent.range.size;
  const bool in_place = !unit.in_place.empty();
  const std::span<std::byte> target = (in_place ? unit.in_place : unit.buffer.bytes()).first(size);
  if (!parts_.store->ReadNow(unit.extent, target)) return false;
  if (unit.pieces.size() > 1) {  // Decoding them may be work for several threads.
    Post({.kind = Event::Kind::kRead, .unit = &unit, .data = target});
    return true;
  }
  SetData(unit, target);
  auto task = std::make_unique<DecodeTask>();
  task->work = unit.work;
  task->stored_bytes = size;
  task->slots.reserve(unit.pieces.size());
  for (const PieceRef ref : unit.pieces) task->slots.push_back(ref.slot);
  RunDecode(*task);
  task->decode_ns = parts_.clock->NowNanos() - start_ns;
  Post({.kind = Event::Kind::kDone, .unit = &unit, .task = std::move(task)});
  return true;
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
    for (std::size_t field = 0; field < stored_fields_.size(); ++field) {
      task->stored_bytes += work.pieces[slot * stored_fields_.size() + field].size;
    }
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
    {
      MutexLock lock(inbox_mutex_);
      ++in_flight_;
    }
    const std::uint64_t deadline = raw->work->Deadline(raw->work->decoding_bytes);
    raw->work->decoding_bytes += raw->stored_bytes;
    lane.parts.executor->SubmitSized(deadline, raw->stored_bytes, [this, raw] {
      std::unique_ptr<DecodeTask> done(raw);
      RunDecode(*done);
      Post({.kind = Event::Kind::kDecoded, .task = std::move(done)});
    });
  }
}

void Engine::RunDecode(DecodeTask& task) {
  const std::int64_t start_ns = parts_.clock->NowNanos();
  const int threads_before = decoding_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::vector<std::byte> scratch;
  for (std::size_t i = 0; i < task.slots.size(); ++i) {
    if (stop_.stop_requested()) break;
    if (i + kPrefetchAhead < task.slots.size()) {
      const CellRun cells = task.work->samples[task.slots[i + kPrefetchAhead]].cells;
      if (cells != kNoCells) parts_.residents->Prefetch(cells);
    }
    const std::uint32_t slot = task.slots[i];
    if (Status status = DecodeSample(task, slot, scratch); !status.ok()) {
      task.failures.emplace_back(slot, std::move(status));
    } else if (task.work->samples[slot].keep != nullptr) {
      KeepSample(task, slot);
    }
  }
  task.decode_ns = parts_.clock->NowNanos() - start_ns;
  const int threads_after = decoding_.fetch_sub(1, std::memory_order_relaxed);
  task.threads = (threads_before + threads_after + 1) / 2;
}

Status Engine::DecodeSample(DecodeTask& task, std::uint32_t slot,
                            std::vector<std::byte>& scratch) const {
  const StepWork& work = *task.work;
  const SampleId sample = work.batch->samples[slot];
  const SampleKey key{.seed = options_.seed, .epoch = work.plan.epoch, .sample = sample};
  const Piece* piece = work.pieces.data() + slot * stored_fields_.size();
  const Tier::Pin& entry = work.samples[slot].entry;
  if (entry && entry.tier()->in_memory() && options_.verify) {
    HEADRACE_RETURN_IF_ERROR(entry.tier()->Check(entry));
  }
  for (std::size_t position = 0; position < parts_.schema.size(); ++position) {
    const BatchField& field = parts_.schema[position];
    const std::span<std::byte> row = work.batch->row(parts_.schema, position, slot);
    if (field.is_inline()) {
      HEADRACE_ASSIGN_OR_RETURN(const std::span<const std::byte> value,
                                parts_.index->inline_value(field.index_field, sample));
      HEADRACE_CHECK(value.size() == row.size());
      if (!value.empty()) std::memcpy(row.data(), value.data(), value.size());
      task.copied_bytes += value.size();
      continue;
    }
    std::span<const std::byte> stored;
    const ReadUnit* const unit = piece->unit;
    if (unit != nullptr) {
      stored = unit->data.subspan(piece->offset, piece->size);
      // A tier has compared its own checksum.
      if (unit->entry == nullptr) HEADRACE_RETURN_IF_ERROR(Verify(field, sample, stored));
    }
    const Piece& at = *piece++;
    if (unit != nullptr && !unit->in_place.empty()) continue;  // It lies in its row.
    if (row.size() != field.codec->RowBytes(at.size)) {
      return Status(StatusCode::kDataLoss,
                    "field " + field.name + ": the index contradicts itself");
    }
    if (field.codec->keeps_bytes()) task.copied_bytes += row.size();
    if (unit == nullptr) {
      if (field.codec->is_copy()) {
        CopyResident(work.samples[slot], at, row);
        continue;
      }
      stored = Resident(work.samples[slot], at, scratch);
      if (!scratch.empty() && stored.data() == scratch.data()) task.copied_bytes += at.size;
    }
    if (Status status = field.codec->Decode(stored, key, row); !status.ok()) {
      return status.WithContext("field " + field.name);
    }
  }
  return Status();
}

// The bytes of a piece in memory, of cells or of a tier: where they lie, or gathered. They were
// verified on their way there.
std::span<const std::byte> Engine::Resident(const SampleWork& sample, const Piece& piece,
                                            std::vector<std::byte>& scratch) const {
  const auto view = sample.entry ? sample.entry.tier()->View(sample.entry, piece.offset, piece.size)
                                 : parts_.residents->View(sample.cells, piece.offset, piece.size);
  if (view.has_value()) return *view;
  if (scratch.size() < piece.size) scratch.resize(piece.size);
  const std::span<std::byte> bytes = std::span(scratch).first(piece.size);
  CopyResident(sample, piece, bytes);
  return bytes;
}

Status Engine::Verify(const BatchField& field, SampleId sample,
                      std::span<const std::byte> stored) const {
  if (!options_.verify) return Status();
  const std::optional<std::uint64_t> expected = parts_.index->checksum(field.index_field, sample);
  if (!expected.has_value() || Hash64(stored) == *expected) return Status();
  return Status(StatusCode::kDataLoss, "field " + field.name +
                                           ": its checksum differs from the index's; the stored "
                                           "bytes are damaged, or changed since it was indexed");
}

void Engine::OnDone(ReadUnit& unit, DecodeTask& task) {
  for (const PieceRef ref : unit.pieces) {
    --unit.work->samples[ref.slot].pieces_left;
    unit.work->MarkRead(now_ns_);
  }
  OnDecoded(task);
}

void Engine::OnDecoded(DecodeTask& task) {
  StepWork& work = *task.work;
  Lane& lane = *work.lane;
  stats_.decode_ns += task.decode_ns;
  stats_.sample_bytes += task.stored_bytes;
  lane.stats.decode_ns += task.decode_ns;
  lane.stats.sample_bytes += task.stored_bytes;
  lane.stats.copied_bytes += task.copied_bytes;
  work.batch->times.sample_bytes += task.stored_bytes;
  Learn(task.decode_ns, task.stored_bytes, lane.decode_ns_per_byte);
  for (const auto& [slot, status] : task.kept) {
    Tier* const tier = std::exchange(work.samples[slot].keep, nullptr);
    FinishKeep(work.batch->samples[slot], tier, status);
  }
  std::size_t next_failure = 0;
  for (const std::uint32_t slot : task.slots) {
    if (next_failure < task.failures.size() && task.failures[next_failure].first == slot) {
      SampleFailed(work, slot, std::move(task.failures[next_failure++].second));
    } else {
      EndSample(work, slot);
    }
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
    ReadUnit* const unit = std::exchange(piece.unit, nullptr);
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
                          IsOfTheSample(status.code()) && !ended_ && sample_count > 1 &&
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
  // The same stand-in wherever and whenever this happens: drawn from what fixes the sample.
  Prng prng(options_.seed, work.plan.epoch, RandomStream::kSubstitute, Raw(wanted));
  std::uint64_t drawn = 0;
  for (std::uint32_t i = 0; i <= sample.draws; ++i) drawn = prng.Below(sample_count - 1);
  ++sample.draws;
  work.batch->samples[slot] = SampleId{drawn < Raw(wanted) ? drawn : drawn + 1};
  if (stored_fields_.empty()) {
    SubmitDecodes(work, {&slot, 1});
  } else {
    PlanSampleReads(work, slot);
  }
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
