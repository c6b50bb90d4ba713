#include "engine/batch/batch.h"

#include "base/units.h"

namespace headrace {

bool ReadInPlace(const BatchField& field, std::uint64_t stored_bytes) {
  // A read in place may begin at any byte of its memory; elements of several bytes are aligned.
  return field.ragged && ElementBytes(field.dtype) == 1 && field.codec->is_copy() &&
         stored_bytes >= kInPlaceBytesMin;
}

ByteRange RowRoom(const BatchField& field, std::uint64_t stored_bytes, std::uint64_t buffer_bytes,
                  std::uint64_t offset) {
  if (ReadInPlace(field, stored_bytes)) return {RoundUp(offset, kBufferAlignment), buffer_bytes};
  return {RoundUp(offset, kRowAlignment), field.codec->RowBytes(stored_bytes)};
}

std::uint64_t FixedBatchBytes(std::span<const BatchField> schema, std::uint64_t rows) {
  std::uint64_t bytes = 0;
  for (const BatchField& field : schema) {
    if (!field.ragged) bytes += RoundUp(field.row_bytes * rows, kBufferAlignment);
  }
  return bytes;
}

}  // namespace headrace
