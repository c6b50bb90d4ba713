#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "headrace/batch.h"
#include "headrace/index.h"
#include "headrace/status.h"

namespace headrace {

// The stored bytes of one field of one sample, and the size that they decode to.
struct StoredValue {
  std::span<const std::byte> bytes;
  std::uint64_t content_bytes = 0;  // ContentBytes()
};

// Fills `row` from a value: undoes its compression, if it has one, and calls the codec. For a
// codec that copies, decompresses into the row itself; for others, into scratch memory.
//
// Errors: those of FieldCodec::DecodeWithin()
//         DataLoss  damaged, or they decode to another size than the index says
Status DecodeField(const BatchField& field, const StoredValue& value, const SampleKey& key,
                   std::span<std::byte> row, ScratchLimit& limit);

// Upper bound of the scratch memory that DecodeField() takes for any sample of the field.
std::uint64_t DecodeScratchBytesMax(const BatchField& field, const FieldInfo& info);

}  // namespace headrace
