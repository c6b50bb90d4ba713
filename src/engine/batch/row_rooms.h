#pragma once

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

// Whether a row of `field`, which is not inline, is the stored bytes, unchanged.
inline bool IsCopy(const BatchField& field) {
  return field.codec->is_copy() && !field.is_compressed();
}
// Whether a row is made of the stored bytes in about the time of a copy, by any task.
inline bool CostsACopy(const BatchField& field) {
  return field.codec->costs_a_copy() && !field.is_compressed();
}

// The bytes of which a sample's row is made: the stored ones, or what they decode to.
//
// Errors: those of Index::decoded_bytes()
Result<std::uint64_t> ContentBytes(const Index& index, const BatchField& field, SampleId id,
                                   std::uint64_t stored_bytes);

// Stored bytes from which a row that IsCopy() is read straight into the batch: what the room for
// widening adds, two alignments at most, is an eighth of that.
inline constexpr std::uint64_t kInPlaceBytesMin = 16 * kBufferAlignment;

// Whether the rows of `stored_bytes` bytes of `field` are read straight into the batch: where they
// are not decoded, and the batch has huge pages. A device that reads past the page cache into small
// pages takes a descriptor for each, and gives two thirds of its rate: it costs less to read into
// staging memory, and to copy.
bool ReadInPlace(const BatchField& field, std::uint64_t stored_bytes);

// What a batch keeps free at `offset` for a ragged row that is not inline: what the row takes, or
// the buffer to read it into, of `buffer_bytes`. `content_bytes`: see ContentBytes().
ByteRange RowRoom(const BatchField& field, std::uint64_t content_bytes, std::uint64_t buffer_bytes,
                  std::uint64_t offset);

// Bytes that a batch of `rows` rows takes for the fields that are not ragged, page rounding
// included.
std::uint64_t FixedBatchBytes(std::span<const BatchField> schema, std::uint64_t rows);

}  // namespace headrace
