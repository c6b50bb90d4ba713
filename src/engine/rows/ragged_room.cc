#include "engine/rows/ragged_room.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"
#include "engine/batch/batch_memory.h"
#include "engine/batch/row_rooms.h"
#include "headrace/batch.h"

namespace headrace {
namespace {

bool IsAligned(const std::byte* buffer) {
  return reinterpret_cast<std::uintptr_t>(buffer) % kBufferAlignment == 0;
}

}  // namespace

void RaggedRoom::Fit(StepWork& work, std::uint32_t slot) const {
  for (std::size_t field = 0; field < loop_.fields.size(); ++field) {
    const BatchField& stored = loop_.fields[field];
    if (!stored.ragged) continue;
    std::span<std::byte>& row = work.batch->fields[loop_.fields.position(field)].rows[slot];
    const std::uint64_t size = work.pieces[slot * loop_.fields.size() + field].size;
    const Result<std::uint64_t> content =
        ContentBytes(loop_.fields.index(), stored, work.batch->samples[slot], size);
    if (!content.ok()) continue;  // An error when it is decoded.
    row = row.first(std::min<std::size_t>(row.size(), stored.codec->RowBytes(content.value())));
  }
}

Status RaggedRoom::MakeRoom(StepWork& work, const RowReader::Piece& piece) const {
  const auto& [extent, ref] = piece;
  const BatchField& out = loop_.fields[ref.field];
  if (!out.ragged) return Status();
  Fetch fetch;
  fetch.from = extent;
  const ByteRange range = extent.range;
  HEADRACE_ASSIGN_OR_RETURN(
      const std::uint64_t content,
      ContentBytes(loop_.fields.index(), out, work.batch->samples[ref.slot], range.size));
  const ByteRange room = RowRoom(out, content, loop_.storage.BufferBytes(fetch), 0);
  std::span<std::byte>& row = work.batch->fields[loop_.fields.position(ref.field)].rows[ref.slot];
  // Decoded rows are exactly as long as they have to be; buffers to read into may be longer.
  const bool fits = ReadInPlace(out, range.size) ? IsAligned(row.data()) && row.size() >= room.size
                                                 : row.size() == room.size;
  return fits ? Status() : TakeRoom(work, room.size, row);
}

Status RaggedRoom::MakeInlineRoom(StepWork& work, std::uint32_t slot) const {
  const std::span<const BatchField> schema = loop_.fields.schema();
  for (std::size_t position = 0; position < schema.size(); ++position) {
    const BatchField& field = schema[position];
    if (!field.is_inline() || !field.ragged) continue;
    HEADRACE_ASSIGN_OR_RETURN(
        const std::span<const std::byte> value,
        loop_.fields.index().inline_value(field.index_field, work.batch->samples[slot]));
    std::span<std::byte>& row = work.batch->fields[position].rows[slot];
    if (row.size() >= value.size()) {
      row = row.first(value.size());
      continue;
    }
    HEADRACE_RETURN_IF_ERROR(TakeRoom(work, value.size(), row));
  }
  return Status();
}

// Gives `row` memory beside that of its batch.
Status RaggedRoom::TakeRoom(StepWork& work, std::uint64_t bytes, std::span<std::byte>& row) const {
  BufferPool& memory = *queues_.parts(work).batch_memory;
  std::optional<Buffer> extra = memory.Acquire(bytes);
  // Its step is the oldest: waiting for room may be in vain.
  if (!extra.has_value()) extra = memory.AcquireBeyond(bytes);
  if (!extra.has_value()) {
    return ResourceExhausted("a row of {}: the system has no memory", FormatBytes(bytes));
  }
  row = extra->bytes().first(bytes);
  work.batch->memory->extra.push_back(*std::move(extra));
  return Status();
}

}  // namespace headrace
