#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/cell_pool.h"
#include "codec/codec.h"
#include "codec/scratch_memory.h"
#include "engine/batch/stored_fields.h"
#include "fetch/fetch.h"
#include "fetch/verifier.h"
#include "headrace/batch.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "tier/tier.h"

namespace headrace {

// The stored bytes of one field of one sample.
struct StoredPiece {
  Fetch* read = nullptr;     // null: they lie in the cells, or in the tier entry, of the sample
  std::uint64_t offset = 0;  // in `read`, or in the cells or the entry
  std::uint64_t size = 0;
  std::uint64_t form_bytes = 0;  // in an entry, in decoded form: its size there; 0: as stored
};

// A sample that is ready to be decoded.
struct StoredSample {
  SampleKey key;
  const StoredPiece* pieces = nullptr;    // one a stored field, in the order of the schema
  CellRun cells = kNoCells;               // of a sample that a block read brought
  const Tier::EntryRef* entry = nullptr;  // of a sample that a tier has; null: none
  // Of a sample that is read: the decoded form of its image, made of the bytes of `pieces`, which
  // still have to be verified; empty: none was made.
  std::span<const std::byte> form = {};
};

// Turns the stored bytes of samples into their rows of a batch: verifies, gathers, copies,
// decompresses, decodes.
//
// Thread safety: every method may be called from any thread, each row by one thread at a time.
// Ownership: the arguments of the constructor outlive it.
class SampleDecoder {
 public:
  // Memory that a sample in several parts is gathered in; a thread's own, kept from call to call.
  using GatheredBytes = std::vector<std::byte, ScratchAllocator<std::byte>>;

  // `residents` may be null: then no sample has cells.
  SampleDecoder(const StoredFields& fields, CellPool* residents, const Verifier& verifier)
      : fields_(fields), residents_(residents), verifier_(verifier) {}

  // Fills row `slot` of `batch`. Adds to `copied_bytes` what LaneStats::copied_bytes counts.
  //
  // Errors: DataLoss           damaged bytes, or bytes that the index contradicts
  //         ResourceExhausted  it needs limit.bytes_needed of scratch memory, and `limit` has less
  //         those of the codec
  Status Decode(const StoredSample& sample, const Batch& batch, std::size_t slot,
                GatheredBytes& scratch, ScratchLimit& limit, std::uint64_t& copied_bytes) const;

 private:
  Result<std::span<const std::byte>> Gather(const StoredSample& sample, const StoredPiece& piece,
                                            GatheredBytes& scratch, ScratchLimit& limit) const;
  void CopyOut(const StoredSample& sample, const StoredPiece& piece, std::span<std::byte> to) const;
  [[nodiscard]] Status WithPlace(const Status& status, const BatchField& field, SampleId id) const;

  const StoredFields& fields_;
  CellPool* const residents_;
  const Verifier& verifier_;
};

}  // namespace headrace
