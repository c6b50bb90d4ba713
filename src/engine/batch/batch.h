#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/coding/coding.h"
#include "base/ids.h"
#include "base/memory/buffer_pool.h"
#include "base/status.h"
#include "codec/codec.h"
#include "engine/batch/batch_times.h"
#include "index/index.h"
#include "plan/placement/placement.h"
#include "store/byte_store.h"

namespace headrace {

// One field of a batch: which field of the dataset it comes from and how it is turned into rows.
struct BatchField {
  std::string name;
  std::size_t index_field = 0;              // position in Index::fields()
  std::shared_ptr<const FieldCodec> codec;  // null for inline fields, which are copied
  DType dtype = DType::kUInt8;              // of a row's elements
  std::vector<std::uint64_t> shape;         // of a row; empty and not ragged: a scalar
  bool ragged = false;                      // a row is any number of arrays of `shape`
  bool is_text = false;                     // ragged: a row is UTF-8
  std::uint64_t row_bytes = 0;              // of a row; ragged: of one of its arrays
  Coding coding = Coding::kStored;          // undone before the codec gets a sample's bytes
  std::uint64_t shuffled_bytes = 1;         // of an element, if HDF5's shuffle is to be undone, too
  std::uint64_t header_bytes = 0;           // then left out, in front
  bool has_decoded_sizes = false;  // the index knows the bytes that the codec gets or makes
  bool may_be_empty = true;        // false: a sample of zero stored bytes is DataLoss
  bool may_read_in_place = true;   // see ReadInPlace()

  [[nodiscard]] bool is_inline() const { return codec == nullptr; }
  [[nodiscard]] bool is_compressed() const { return coding != Coding::kStored; }
  // Whether a row is the stored bytes, unchanged.
  [[nodiscard]] bool is_copy() const { return codec->is_copy() && !is_compressed(); }
};

// Which bytes a row has in memory.
struct BatchRows {
  std::span<std::byte> packed;             // not ragged: all rows, one after the other
  std::vector<std::span<std::byte>> rows;  // ragged: each row
};

// Where a sample came from, in Batch::sources, if it was another node.
inline constexpr TierNumber kFromNode = 0xfe;

// A batch of one rank: its samples in slot order and their fields. Made by the engine, which no
// longer touches it once it is handed over; then it belongs to whoever holds it.
//
// Thread safety: as for a plain struct. The memory goes back to its pool on whatever thread
// destroys the Batch, also after the engine is gone.
struct Batch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;  // its memory, without `extra`, is beyond the budget
  BatchTimes times;
  std::vector<SampleId> samples;            // delivered, by slot: stand-ins included
  std::vector<Substitution> substitutions;  // those among them, by slot
  // By slot, where there are tiers: a tier, kFromNode, or kNoTier: storage.
  std::vector<TierNumber> sources;
  std::vector<BatchRows> fields;  // parallel to the schema
  std::vector<Buffer> extra;      // ragged rows of stand-ins, that need more room than was planned
  Buffer memory;
  // Of a batch that another process made: says when it is let go, and what its rows lie in.
  std::shared_ptr<const void> lease;
  std::vector<std::shared_ptr<SharedMemory>> mapped;

  // The row in `slot` of field number `position` of `schema`.
  [[nodiscard]] std::span<std::byte> row(std::span<const BatchField> schema, std::size_t position,
                                         std::size_t slot) const {
    const BatchField& field = schema[position];
    return field.ragged ? fields[position].rows[slot]
                        : fields[position].packed.subspan(slot * field.row_bytes, field.row_bytes);
  }
};

// Rows are aligned to this in ragged fields, and each field to a page.
inline constexpr std::uint64_t kRowAlignment = 64;

// The bytes of which a sample's row is made: the stored ones, or what they decode to.
//
// Errors: those of Index::decoded_bytes()
Result<std::uint64_t> ContentBytes(const Index& index, const BatchField& field, SampleId id,
                                   std::uint64_t stored_bytes);

// Stored bytes from which a row that is_copy() is read straight into the batch: what the room for
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
