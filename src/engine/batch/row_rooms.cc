#include "engine/batch/row_rooms.h"

#include "base/units.h"

namespace headrace {

Result<std::uint64_t> ContentBytes(const Index& index, const BatchField& field, SampleId id,
                                   std::uint64_t stored_bytes) {
  if (!field.is_compressed() && !field.has_decoded_sizes) return stored_bytes;
  return index.decoded_bytes(field.index_field, id);
}

bool ReadInPlace(const BatchField& field, std::uint64_t stored_bytes) {
  // A read in place may begin at any byte of its memory; elements of several bytes are aligned.
  return field.may_read_in_place && field.ragged && ElementBytes(field.dtype) == 1 &&
         IsCopy(field) && stored_bytes >= kInPlaceBytesMin;
}

ByteRange RowRoom(const BatchField& field, std::uint64_t content_bytes, std::uint64_t buffer_bytes,
                  std::uint64_t offset) {
  if (ReadInPlace(field, content_bytes)) return {RoundUp(offset, kBufferAlignment), buffer_bytes};
  return {RoundUp(offset, kRowAlignment), field.codec->RowBytes(content_bytes)};
}

std::uint64_t FixedBatchBytes(std::span<const BatchField> schema, std::uint64_t rows) {
  std::uint64_t bytes = 0;
  for (const BatchField& field : schema) {
    if (!field.ragged) bytes += RoundUp(field.row_bytes * rows, kBufferAlignment);
  }
  return bytes;
}

}  // namespace headrace
