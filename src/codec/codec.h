#pragma once

// codec/ turns the stored bytes of a sample into its rows of a batch: it decodes, augments and lays
// them out. It does not know where bytes come from or when a batch is due.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

class DecodedForm;

// The memory that a decode may allocate besides its arguments, and the memory that it needs.
struct ScratchLimit {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  std::uint64_t bytes_max = kNone;  // a decode that needs more fails before it allocates
  std::uint64_t retained_bytes_max = 1U << 20;  // what a thread may retain for its next decode
  std::uint64_t bytes_needed = 0;               // out: an upper bound, known from the header alone
};

// The key of the random choices of a sample's transforms. The choices depend on nothing else: not
// on threads, slots, ranks or resumes.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  SampleId sample{};
};

// Turns the bytes of one field of one sample into its row of the batch.
//
// Thread safety: every method may be called from any number of threads at once.
class FieldCodec {
 public:
  virtual ~FieldCodec() = default;

  // Size in bytes of the row for `encoded_bytes` stored bytes. Known before anything is read, so
  // that the plan can lay out batches. Codecs of fixed shape always return the same size.
  [[nodiscard]] virtual std::uint64_t RowBytes(std::uint64_t encoded_bytes) const = 0;

  // Whether a row is the stored bytes, unchanged. Those that have the size of their row may then be
  // read directly into the batch, without a call of Decode().
  [[nodiscard]] virtual bool is_copy() const { return false; }

  // Whether Decode() takes little more time than a copy, and needs no memory besides its arguments.
  [[nodiscard]] virtual bool costs_a_copy() const { return is_copy(); }

  // Whether Decode() only copies the stored bytes. Its bytes are then counted as copied.
  [[nodiscard]] virtual bool keeps_bytes() const { return is_copy(); }

  // A second form of the stored bytes (codec/decoded_form.h); null: there is none.
  [[nodiscard]] virtual const DecodedForm* decoded_form() const { return nullptr; }

  // Fills all of `row` (RowBytes(encoded.size()) bytes) from `encoded`. Equal arguments give equal
  // bytes, on any thread, any number of times.
  //
  // Errors: DataLoss           not a format of this codec, truncated or damaged; `row` is then
  //                            unspecified
  //         InvalidArgument    decodable, but not permitted: an image beyond the pixel limit
  //         ResourceExhausted  the system has no memory for a decoder: no error of the sample
  // A message describes what is wrong with the bytes; the caller adds the sample.
  Status Decode(std::span<const std::byte> encoded, const SampleKey& key,
                std::span<std::byte> row) const {
    ScratchLimit none;
    return DecodeWithin(encoded, key, row, none);
  }

  // Upper bound of the bytes that a decode allocates besides `encoded` and `row`, for any input
  // that it does not refuse.
  [[nodiscard]] virtual std::uint64_t ScratchBytesMax() const { return 0; }

  // Decode() with a limit on that memory. Sets limit.bytes_needed first; if it is above
  // limit.bytes_max, returns the error without decoding.
  //
  // Errors: those of Decode(); ResourceExhausted  limit.bytes_needed is above limit.bytes_max
  virtual Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& key,
                              std::span<std::byte> row, ScratchLimit& limit) const = 0;
};

}  // namespace headrace
