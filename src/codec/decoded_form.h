#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "headrace/status.h"

namespace headrace {

// A second form of a field's stored bytes, which takes more memory, and of which the codec makes
// the same rows in less time. Tiers may hold it in place of the stored bytes.
//
// Thread safety: every method may be called from any number of threads at once.
class DecodedForm {
 public:
  virtual ~DecodedForm() = default;

  // Fills all of `form` from the stored bytes. `limit` is that of FieldCodec::DecodeWithin(); the
  // memory of `form` is not part of it.
  //
  // Errors: those of FieldCodec::DecodeWithin()
  //         FailedPrecondition  the form has another size; or a row made of it could differ from
  //                             one of the stored bytes
  virtual Status MakeForm(std::span<const std::byte> encoded, std::span<std::byte> form,
                          ScratchLimit& limit) const = 0;

  // FieldCodec::DecodeWithin() from bytes that MakeForm() made: the same row.
  //
  // Errors: DataLoss           MakeForm() did not make these bytes
  //         ResourceExhausted  as FieldCodec::DecodeWithin()
  virtual Status DecodeForm(std::span<const std::byte> form, const SampleKey& key,
                            std::span<std::byte> row, ScratchLimit& limit) const = 0;
};

}  // namespace headrace
