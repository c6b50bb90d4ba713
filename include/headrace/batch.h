#pragma once

// A batch, and how its fields lie in memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/index.h"
#include "headrace/members.h"
#include "headrace/part_stats.h"

namespace headrace {

class FieldCodec;    // decodes; private to the library
struct BatchMemory;  // private to the library

// Rows are aligned to this in ragged fields, and each field to a page.
inline constexpr std::uint64_t kRowAlignment = 64;

// One field of a batch: which field of the dataset it comes from and how it is turned into rows.
// `name`, `dtype`, `shape`, `ragged`, `is_text` and `row_bytes` describe rows; the rest is for the
// engine.
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
  std::uint64_t header_bytes = 0;           // then removed from the front
  bool has_decoded_sizes = false;  // the index knows the bytes that the codec gets or makes
  bool may_be_empty = true;        // false: a sample of zero stored bytes is DataLoss
  bool may_read_in_place = true;   // whether large rows may be read straight into the batch

  [[nodiscard]] bool is_inline() const { return codec == nullptr; }
  [[nodiscard]] bool is_compressed() const { return coding != Coding::kStored; }
};

// Where rows lie in memory.
struct BatchRows {
  std::span<std::byte> packed;             // not ragged: all rows, one after the other
  std::vector<std::span<std::byte>> rows;  // ragged: each row
};

// When a batch went through the engine; nanoseconds of its clock.
struct BatchTimes {
  std::int64_t admitted_ns = 0;
  std::int64_t read_ns = 0;  // all of its bytes were read
  std::int64_t done_ns = 0;  // and decoded
  // Time of loading and decoding, as Lobster compares it between ranks: since it was admitted or
  // its lane's previous batch was done, whichever came later.
  std::int64_t busy_ns = 0;
  std::int64_t handed_ns = 0;
  StallTimes stall_ns{};           // waited for it
  std::uint64_t sample_bytes = 0;  // stored, of the samples decoded
};
HEADRACE_MEMBERS(BatchTimes, admitted_ns, read_ns, done_ns, busy_ns, handed_ns, stall_ns,
                 sample_bytes)

// A batch of one rank: its samples in slot order and their fields. Made by the engine, which no
// longer touches it once it is handed over; then it belongs to whoever holds it.
//
// Thread safety: as for a plain struct. The memory goes back to its pool on whatever thread
// destroys the last copy of the Batch, also after the engine and the loader are gone; rows are
// valid until then.
struct Batch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;  // its memory is beyond the budget
  BatchTimes times;
  std::vector<SampleId> samples;            // delivered, by slot: stand-ins included
  std::vector<Substitution> substitutions;  // those among them, by slot
  // By slot, where there are tiers: a tier, kFromNode, or kNoTier: storage.
  std::vector<TierNumber> sources;
  std::vector<BatchRows> fields;        // parallel to the schema
  std::shared_ptr<BatchMemory> memory;  // owns the memory of the rows

  // The row in `slot` of field number `position` of `schema`.
  [[nodiscard]] std::span<std::byte> row(std::span<const BatchField> schema, std::size_t position,
                                         std::size_t slot) const {
    const BatchField& field = schema[position];
    return field.ragged ? fields[position].rows[slot]
                        : fields[position].packed.subspan(slot * field.row_bytes, field.row_bytes);
  }
};

// What BatchSource::Next() returns.
struct TakenBatch {
  std::shared_ptr<Batch> batch;  // null: the time limit passed, or the plan ended
  bool ended = false;
};

}  // namespace headrace
