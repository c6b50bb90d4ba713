#include "engine/rows/warm_rows.h"

#include <algorithm>
#include <utility>

#include "engine/batch/row_rooms.h"
#include "headrace/batch.h"

namespace headrace {
namespace {

// Of a task, in multiples of what is worth a thread to decode: a copy is quicker.
constexpr std::uint64_t kTaskFactor = 4;

// Of a task, whatever their size: they may lie in as many files.
constexpr std::size_t kTaskRows = 256;

// Rows whose index entries are fetched while the entry of one is looked at.
constexpr std::size_t kWarmAhead = 8;

}  // namespace

bool WarmRows::MayTry() const {
  const StoredFields& fields = loop_.fields;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    if (!CostsACopy(fields[field])) return false;
  }
  return !fields.empty() && loop_.storage.MayReadNow();
}

std::uint64_t WarmRows::RoomBytes(const StepWork& work, std::uint32_t slot) const {
  const StoredFields& fields = loop_.fields;
  std::uint64_t bytes = 0;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    bytes += work.batch->row(fields.schema(), fields.position(field), slot).size();
  }
  return bytes;
}

void WarmRows::Try(StepWork& work, std::span<const std::uint32_t> slots) {
  if (slots.empty()) return;
  const std::uint64_t bytes_max = kTaskFactor * loop_.options.decode_task_bytes;
  auto task = std::make_unique<WarmTask>();
  for (const std::uint32_t slot : slots) {
    const std::uint64_t bytes = RoomBytes(work, slot);
    const bool full = task->stored_bytes + bytes > bytes_max || task->slots.size() == kTaskRows;
    if (full && !task->slots.empty()) {
      Submit(work, std::exchange(task, std::make_unique<WarmTask>()));
    }
    task->slots.push_back(slot);
    task->stored_bytes += bytes;
  }
  Submit(work, std::move(task));
}

void WarmRows::Submit(StepWork& work, std::unique_ptr<WarmTask> task) {
  task->work = &work;
  work.samples_tried += task->slots.size();
  const std::uint64_t deadline = work.Deadline(work.issued_bytes);
  work.issued_bytes += task->stored_bytes;
  work.copying_bytes += task->stored_bytes;
  loop_.inbox.BeginWork();
  queues_.parts(work).executor->Submit(deadline, [this, raw = task.release()] {
    const std::size_t count = raw->slots.size();
    Read(*raw);
    raw->work->samples_tried -= count;
    loop_.Post([this, raw] { client_.OnWarm(*std::unique_ptr<WarmTask>(raw)); });
  });
}

// A task.
void WarmRows::Read(WarmTask& task) {
  const std::int64_t start_ns = loop_.clock.NowNanos();
  const std::uint64_t tried_bytes = task.stored_bytes;
  Tried tried = {.slots = std::exchange(task.slots, {})};
  task.stored_bytes = 0;
  Room room;
  if (NeedsRoom()) room = TakeRoom(tried_bytes);
  PlanReads(*task.work, {room.bytes.get(), room.size}, tried);
  loop_.storage.ReadAllNow(tried.reads);
  DecodeAll(task, tried);
  GiveBack(std::move(room));
  task.missed_bytes = tried_bytes - task.stored_bytes;
  task.decode_ns = loop_.clock.NowNanos() - start_ns;
}

// A task: where the bytes of its rows lie, and where to read them to: to the row itself, if it is
// these bytes, else to `room`.
void WarmRows::PlanReads(const StepWork& work, std::span<std::byte> room, Tried& tried) const {
  const StoredFields& fields = loop_.fields;
  const Batch& batch = *work.batch;
  tried.reads.reserve(tried.slots.size() * fields.size());
  for (std::size_t i = 0; i < tried.slots.size(); ++i) {
    Prefetch(batch, tried.slots, i);
    const std::uint32_t slot = tried.slots[i];
    for (std::size_t number = 0; number < fields.size(); ++number) {
      const BatchField& field = fields[number];
      NowRead& read = tried.reads.emplace_back();
      if (loop_.stop.stop_requested()) continue;
      const std::span<std::byte> row = batch.row(fields.schema(), fields.position(number), slot);
      const Result<Extent> extent = fields.index().extent(field.index_field, batch.samples[slot]);
      // What the index gets wrong is for those to say who read such a row alone.
      if (!extent.ok() || extent.value().range.size > row.size()) continue;
      read.extent = extent.value();
      const std::uint64_t size = read.extent.range.size;
      if (!IsCopy(field)) {
        read.dst = room.first(size);
        room = room.subspan(size);
      } else if (field.ragged || size == row.size()) {
        read.dst = row.first(size);
      }
    }
  }
}

// A task: makes rows of what was read, and notes those of which a part was not.
void WarmRows::DecodeAll(WarmTask& task, const Tried& tried) const {
  const StoredFields& fields = loop_.fields;
  Batch& batch = *task.work->batch;
  std::vector<Fetch> fetches(fields.size());  // They say where the bytes are.
  std::vector<StoredPiece> pieces(fields.size());
  SampleDecoder::GatheredBytes scratch;
  ScratchLimit limit;
  for (std::size_t i = 0; i < tried.slots.size(); ++i) {
    // Its checksum again: copying the rows may have evicted it.
    Prefetch(batch, tried.slots, i);
    const std::uint32_t slot = tried.slots[i];
    const std::span<const NowRead> reads =
        std::span(tried.reads).subspan(i * fields.size(), fields.size());
    const auto is_read = [](const NowRead& read) { return read.answer == ReadNowAnswer::kRead; };
    const auto lacks = [](const NowRead& read) { return read.answer == ReadNowAnswer::kNotHeld; };
    if (!std::ranges::all_of(reads, is_read)) {
      task.missed.emplace_back(slot, std::ranges::any_of(reads, lacks));
      continue;
    }
    for (std::size_t number = 0; number < fields.size(); ++number) {
      const std::span<std::byte> bytes = reads[number].dst;
      const BatchField& field = fields[number];
      if (field.ragged && IsCopy(field)) {
        batch.fields[fields.position(number)].rows[slot] = bytes;
      }
      fetches[number].data = bytes;
      pieces[number] = {.read = &fetches[number], .size = bytes.size()};
      task.stored_bytes += bytes.size();
    }
    const StoredSample stored = {.key = {.seed = loop_.options.seed,
                                         .epoch = task.work->plan.epoch,
                                         .sample = batch.samples[slot]},
                                 .pieces = pieces.data()};
    Status status = decoder_.Decode(stored, batch, slot, scratch, limit, task.copied_bytes);
    task.slots.push_back(slot);
    if (!status.ok()) task.failures.emplace_back(slot, std::move(status));
  }
}

// Fetches the index entries of a row that comes after `next`.
void WarmRows::Prefetch(const Batch& batch, std::span<const std::uint32_t> slots,
                        std::size_t next) const {
  if (next + kWarmAhead >= slots.size()) return;
  const SampleId sample = batch.samples[slots[next + kWarmAhead]];
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    loop_.fields.index().Prefetch(loop_.fields[field].index_field, sample);
  }
}

// Whether there are rows that are not the stored bytes.
bool WarmRows::NeedsRoom() const {
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    if (!IsCopy(loop_.fields[field])) return true;
  }
  return false;
}

// At least `bytes`.
WarmRows::Room WarmRows::TakeRoom(std::uint64_t bytes) {
  Room room;
  {
    MutexLock lock(mutex_);
    if (!rooms_.empty()) {
      room = std::move(rooms_.back());
      rooms_.pop_back();
    }
  }
  if (room.size >= bytes) return room;
  const std::uint64_t size = std::max(bytes, kTaskFactor * loop_.options.decode_task_bytes);
  return {std::make_unique_for_overwrite<std::byte[]>(size), size};
}

void WarmRows::GiveBack(Room room) {
  if (room.size == 0) return;
  MutexLock lock(mutex_);
  rooms_.push_back(std::move(room));
}

}  // namespace headrace
