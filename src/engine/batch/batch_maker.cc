#include "engine/batch/batch_maker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "engine/batch/batch_memory.h"
#include "engine/batch/row_rooms.h"

namespace headrace {
namespace {

// No bytes: wait. Sets `beyond_budget` if the memory is beyond the pool's budget.
Result<Buffer> Acquire(BufferPool& pool, std::uint64_t bytes, BatchMaker::WhenFull when_full,
                       bool& beyond_budget) {
  using WhenFull = BatchMaker::WhenFull;
  std::optional<Buffer> memory = pool.AcquireReady(bytes);
  if (memory.has_value()) return *std::move(memory);
  if (when_full == WhenFull::kWait) return Buffer();
  if (when_full == WhenFull::kBeyondIfFree && pool.stats().used_bytes != 0) return Buffer();
  memory = pool.Acquire(bytes);
  if (memory.has_value()) return *std::move(memory);
  beyond_budget = true;
  memory = pool.AcquireBeyond(bytes);
  if (memory.has_value()) return *std::move(memory);
  return ResourceExhausted("allocating {} for a batch: the system has no memory; lower batch_size=",
                           FormatBytes(bytes));
}

}  // namespace

// Where the ragged rows of a step go, by ragged field and slot, after its other fields.
std::vector<ByteRange> BatchMaker::LayOutRows(const Step& step) const {
  std::vector<ByteRange> rooms;
  std::uint64_t end = FixedBatchBytes(schema_, step.deliveries.size());
  for (const BatchField& field : schema_) {
    if (!field.ragged) continue;
    for (const Delivery& delivery : step.deliveries) {
      if (field.is_inline()) {
        const auto value = index_.inline_value(field.index_field, delivery.sample);
        rooms.push_back({RoundUp(end, kRowAlignment), value.ok() ? value.value().size() : 0});
        end = rooms.back().end();
        continue;
      }
      // A missing extent is an error of its sample, reported when its read is planned; a missing
      // size when it is decoded.
      const Result<Extent> extent = index_.extent(field.index_field, delivery.sample);
      const ByteRange range = extent.ok() ? extent.value().range : ByteRange();
      const Result<std::uint64_t> decoded =
          ContentBytes(index_, field, delivery.sample, range.size);
      const std::uint64_t content = decoded.ok() ? decoded.value() : 0;
      // Rows are copied out of cells: none of them is a buffer to read into.
      rooms.push_back(delivery.block_read != kNoBlockRead
                          ? ByteRange{RoundUp(end, kRowAlignment), field.codec->RowBytes(content)}
                          : RowRoom(field, content, store_.BufferBytes(range), end));
      end = rooms.back().end();
    }
  }
  return rooms;
}

Result<std::shared_ptr<Batch>> BatchMaker::Make(const Step& step, BufferPool& memory,
                                                WhenFull when_full) const {
  const std::uint64_t rows = step.deliveries.size();
  const std::vector<ByteRange> rooms = LayOutRows(step);
  const std::uint64_t laid_out =
      rooms.empty() ? FixedBatchBytes(schema_, rows) : rooms.back().end();
  // At least 1 byte: an empty buffer means that there is no memory yet.
  const std::uint64_t size = std::max<std::uint64_t>(laid_out, 1);
  auto batch = std::make_shared<Batch>();
  batch->memory = std::make_shared<BatchMemory>();
  HEADRACE_ASSIGN_OR_RETURN(batch->memory->rows,
                            Acquire(memory, size, when_full, batch->beyond_budget));
  const std::span<std::byte> bytes = batch->memory->rows.bytes();
  if (bytes.empty()) return std::shared_ptr<Batch>();

  batch->epoch = step.epoch;
  batch->step = step.step;
  batch->ends_epoch = step.ends_epoch;
  batch->samples.reserve(rows);
  for (const Delivery& delivery : step.deliveries) batch->samples.push_back(delivery.sample);
  std::uint64_t offset = 0;
  auto room = rooms.begin();
  for (const BatchField& field : schema_) {
    BatchRows& out = batch->fields.emplace_back();
    if (!field.ragged) {
      out.packed = bytes.subspan(offset, rows * field.row_bytes);
      offset += RoundUp(out.packed.size(), kBufferAlignment);
      continue;
    }
    out.rows.reserve(rows);
    for (std::uint64_t slot = 0; slot < rows; ++slot, ++room) {
      out.rows.push_back(bytes.subspan(room->offset, room->size));
    }
  }
  return batch;
}

}  // namespace headrace
