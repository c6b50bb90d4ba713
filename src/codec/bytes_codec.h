#pragma once

#include <cstdint>
#include <memory>

#include "codec/codec.h"

namespace headrace {

// Copies the stored bytes; a row is as long as they are.
std::unique_ptr<FieldCodec> MakeBytesCodec();

// Fixed-shape arrays: copies exactly `row_bytes` stored bytes; any other number is DataLoss.
std::unique_ptr<FieldCodec> MakeArrayCodec(std::uint64_t row_bytes);

}  // namespace headrace
