#include "engine/rows/warm_rows.h"

#include "engine/batch/batch.h"

namespace headrace {
namespace {

// Of a task, in multiples of what is worth a thread to decode: a copy is quicker.
constexpr std::uint64_t kTaskFactor = 4;

// Of a task, whatever their size: they may lie in as many files.
constexpr std::size_t kTaskRows = 256;

// Rows whose index entries are fetched while the entry of one is looked at.
constexpr std::size_t kPrefetchAhead = 8;

}  // namespace

bool WarmRows::MayTry() const {
  return loop_.fields.size() == 1 && loop_.fields[0].is_copy() && loop_.storage.MayReadNow();
}

std::uint64_t WarmRows::RoomBytes(const StepWork& work, std::uint32_t slot) const {
  return work.batch->row(loop_.fields.schema(), loop_.fields.position(0), slot).size();
}

void WarmRows::Try(StepWork& work, std::span<const std::uint32_t> slots) {
  if (slots.empty()) return;
  const std::uint64_t bytes_max = kTaskFactor * loop_.options.decode_task_bytes;
  auto task = std::make_unique<WarmTask>();
  for (const std::uint32_t slot : slots) {
    task->slots.push_back(slot);
    task->stored_bytes += RoomBytes(work, slot);
    if (task->stored_bytes < bytes_max && task->slots.size() < kTaskRows) continue;
    Submit(work, std::exchange(task, std::make_unique<WarmTask>()));
  }
  if (!task->slots.empty()) Submit(work, std::move(task));
}

void WarmRows::Submit(StepWork& work, std::unique_ptr<WarmTask> task) {
  task->work = &work;
  work.samples_tried += task->slots.size();
  const std::uint64_t deadline = work.Deadline(work.issued_bytes);
  work.issued_bytes += task->stored_bytes;
  loop_.inbox.BeginWork();
  queues_.parts(work).executor->Submit(deadline, [this, raw = task.release()] {
    const std::size_t count = raw->slots.size();
    Read(*raw);
    raw->work->samples_tried -= count;
    loop_.Post([this, raw] { client_.OnWarm(*std::unique_ptr<WarmTask>(raw)); });
  });
}

// A task.
void WarmRows::Read(WarmTask& task) const {
  const std::int64_t start_ns = loop_.clock.NowNanos();
  const StoredFields& fields = loop_.fields;
  const BatchField& field = fields[0];
  Batch& batch = *task.work->batch;
  const std::vector<std::uint32_t> slots = std::move(task.slots);
  const std::uint64_t tried_bytes = std::exchange(task.stored_bytes, 0);
  task.slots.clear();
  task.slots.reserve(slots.size());

  std::vector<NowRead> reads;  // of all slots; without bytes: not to be read
  reads.reserve(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i + kPrefetchAhead < slots.size()) {
      fields.index().Prefetch(field.index_field, batch.samples[slots[i + kPrefetchAhead]]);
    }
    const std::uint32_t slot = slots[i];
    const std::span<std::byte> row = batch.row(fields.schema(), fields.position(0), slot);
    NowRead& read = reads.emplace_back();
    if (loop_.stop.stop_requested()) continue;
    const Result<Extent> extent = fields.index().extent(field.index_field, batch.samples[slot]);
    // What the index gets wrong is for those to say who read such a row alone.
    if (!extent.ok() || extent.value().range.size > row.size()) continue;
    read.extent = extent.value();
    if (field.ragged || read.extent.range.size == row.size()) {
      read.dst = row.first(read.extent.range.size);
    }
  }
  loop_.storage.ReadAllNow(reads);

  Fetch fetch;  // Says where the bytes are: in their row.
  SampleDecoder::GatheredBytes scratch;
  ScratchLimit limit;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i + kPrefetchAhead <
        slots.size()) {  // Its checksum again: copying the rows may have evicted it.
      fields.index().Prefetch(field.index_field, batch.samples[slots[i + kPrefetchAhead]]);
    }
    const NowRead& read = reads[i];
    const std::uint32_t slot = slots[i];
    if (read.answer != ReadNowAnswer::kRead) {
      task.missed.emplace_back(slot, read.answer == ReadNowAnswer::kNotHeld);
      continue;
    }
    if (field.ragged) batch.fields[fields.position(0)].rows[slot] = read.dst;
    fetch.data = read.dst;
    const StoredPiece piece = {.read = &fetch, .size = read.dst.size()};
    const StoredSample stored = {.key = {.seed = loop_.options.seed,
                                         .epoch = task.work->plan.epoch,
                                         .sample = batch.samples[slot]},
                                 .pieces = &piece};
    Status status = decoder_.Decode(stored, batch, slot, scratch, limit, task.copied_bytes);
    task.slots.push_back(slot);
    task.stored_bytes += read.dst.size();
    if (!status.ok()) task.failures.emplace_back(slot, std::move(status));
  }
  task.missed_bytes = tried_bytes - task.stored_bytes;
  task.decode_ns = loop_.clock.NowNanos() - start_ns;
}

}  // namespace headrace
