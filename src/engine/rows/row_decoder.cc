#include "engine/rows/row_decoder.h"

#include <optional>
#include <vector>

#include "base/check.h"
#include "engine/tiers/entry_form.h"

namespace headrace {
namespace {

// Samples in cells that are fetched while others are decoded: enough to hide memory's latency.
constexpr std::size_t kPrefetchAhead = 8;

}  // namespace

std::uint64_t RowDecoder::StoredBytes(const StepWork& work, std::uint32_t slot) const {
  std::uint64_t bytes = 0;
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    bytes += work.pieces[slot * loop_.fields.size() + field].size;
  }
  return bytes;
}

void RowDecoder::Submit(StepWork& work, std::span<const std::uint32_t> slots) {
  std::unique_ptr<DecodeTask> task;
  for (const std::uint32_t slot : slots) {
    if (task == nullptr) {
      task = std::make_unique<DecodeTask>();
      task->work = &work;
    }
    task->slots.push_back(slot);
    task->stored_bytes += StoredBytes(work, slot);
    if (task->stored_bytes >= loop_.options.decode_task_bytes) {
      queues_.AddDecode(std::exchange(task, nullptr));
    }
  }
  if (task != nullptr) queues_.AddDecode(std::move(task));
  Start(work.lane);
}

void RowDecoder::Start(std::uint32_t lane) {
  while (std::unique_ptr<DecodeTask> task = queues_.TakeDecode(lane)) {
    StepWork& work = *task->work;
    const std::uint64_t deadline = work.Deadline(work.decoding_bytes);
    const std::uint64_t bytes = task->stored_bytes;
    work.decoding_bytes += bytes;
    loop_.inbox.BeginWork();
    Executor& executor = *queues_.parts(work).executor;
    executor.SubmitSized(deadline, bytes, [this, raw = task.release()] {
      Run(*raw);
      loop_.Post([this, raw] { OnRun(std::unique_ptr<DecodeTask>(raw)); });
    });
  }
}

void RowDecoder::OnRun(std::unique_ptr<DecodeTask> task) {
  queues_.EndDecode(*task);
  // Of tasks that only decoded, and of all their samples.
  if (parts_.observer != nullptr && task->decode_ns > 0 && task->stored_bytes > 0 &&
      task->failures.empty() && task->large.empty() && !loop_.ended) {
    parts_.observer->OnDecoded({.samples = task->slots.size(),
                                .bytes = task->stored_bytes,
                                .threads = task->threads,
                                .nanoseconds = task->decode_ns});
  }
  client_.OnDecoded(*task);
  Start(task->work->lane);
}

void RowDecoder::Run(DecodeTask& task) {
  const std::int64_t start_ns = loop_.clock.NowNanos();
  const int threads_before = decoding_.fetch_add(1, std::memory_order_relaxed) + 1;
  GatheredBytes scratch;
  for (std::size_t i = 0; i < task.slots.size(); ++i) {
    if (loop_.stop.stop_requested()) break;
    if (i + kPrefetchAhead < task.slots.size()) {
      const CellRun cells = task.work->samples[task.slots[i + kPrefetchAhead]].cells;
      if (cells != kNoCells) parts_.residents->Prefetch(cells);
    }
    DecodeRow(task, task.slots[i], scratch);
  }
  task.decode_ns = loop_.clock.NowNanos() - start_ns;
  const int threads_after = decoding_.fetch_sub(1, std::memory_order_relaxed);
  task.threads = (threads_before + threads_after + 1) / 2;
}

// Decodes a row, or fails it, or leaves it until there is scratch memory.
void RowDecoder::DecodeRow(DecodeTask& task, std::uint32_t slot, GatheredBytes& scratch) {
  ScratchLimit limit;
  if (parts_.scratch != nullptr) limit = parts_.scratch->small();
  if (task.lease.bytes() != 0) limit.bytes_max = task.lease.bytes();
  const std::uint64_t copied_bytes = task.copied_bytes;
  const StepWork& work = *task.work;
  const SampleWork& row = work.samples[slot];
  StoredSample stored = {.key = {.seed = loop_.options.seed,
                                 .epoch = work.plan.epoch,
                                 .sample = work.batch->samples[slot]},
                         .pieces = work.pieces.data() + slot * loop_.fields.size(),
                         .cells = row.cells,
                         .entry = row.chain.entry() ? &row.chain.entry() : nullptr};
  // A tier that takes the image decoded: it is decoded once, and its row made of that.
  std::vector<std::span<const std::byte>> parts;
  std::optional<Result<EntryForm::Memory>> entry;  // made of few rows only
  if (row.insert_into != nullptr) {
    parts = PartsOf(work, slot);
    if (loop_.entry_form.decodes()) {
      entry.emplace(loop_.entry_form.Make(stored.key.sample, parts));
      if (entry->ok()) stored.form = entry->value().form();
    }
  }
  Status status = decoder_.Decode(stored, *work.batch, slot, scratch, limit, task.copied_bytes);
  if (!status.ok() && limit.bytes_needed > limit.bytes_max) {
    const Status fits = parts_.scratch->Check(limit.bytes_needed);
    if (fits.ok()) {
      task.large.emplace_back(slot, limit.bytes_needed);
      task.copied_bytes = copied_bytes;
      task.stored_bytes -= StoredBytes(work, slot);
      return;
    }
    status = fits.WithContext(status.message());
  }
  if (!status.ok()) {
    task.failures.emplace_back(slot, std::move(status));
  } else if (entry.has_value() && !entry->ok()) {
    task.inserted.emplace_back(slot, entry->status());
  } else if (row.insert_into != nullptr) {
    client_.InsertRow(task, slot, std::move(parts));
  }
}

// The stored fields of a row that was read from storage or another node.
std::vector<std::span<const std::byte>> RowDecoder::PartsOf(const StepWork& work,
                                                            std::uint32_t slot) const {
  std::vector<std::span<const std::byte>> parts;
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    const StoredPiece& piece = work.pieces[slot * loop_.fields.size() + field];
    HEADRACE_CHECK(piece.read != nullptr);
    parts.push_back(piece.read->data.subspan(piece.offset, piece.size));
  }
  return parts;
}

void RowDecoder::Count(const DecodeTask& task) {
  queues_.CountDecode(task);
  task.work->batch->times.sample_bytes += task.stored_bytes;
}

void RowDecoder::AddLarge(RowRef row, std::uint64_t bytes) {
  large_.emplace(row.step->deadline, std::pair(row, bytes));
}

// None overtakes another: otherwise a huge one might wait for ever.
void RowDecoder::StartLarge() {
  while (!large_.empty()) {
    const auto [row, bytes] = large_.begin()->second;
    std::optional<ScratchLease> lease = parts_.scratch->Acquire(bytes);
    if (!lease.has_value()) return;
    auto task = std::make_unique<DecodeTask>();
    task->work = row.step;
    task->slots.push_back(row.slot);
    task->stored_bytes = StoredBytes(*row.step, row.slot);
    task->lease = *std::move(lease);
    large_.erase(large_.begin());
    queues_.AddDecode(std::move(task), /*first=*/true);
    Start(row.step->lane);
  }
}

}  // namespace headrace
