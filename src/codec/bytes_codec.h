#pragma once

#include <cstdint>
#include <memory>

#include "codec/codec.h"

namespace headrace {

// The stored bytes as they are; a row is as long as they are.
std::unique_ptr<FieldCodec> MakeBytesCodec();

// Fixed-shape arrays: exactly `row_bytes` stored bytes, as they are; any other number is DataLoss.
std::unique_ptr<FieldCodec> MakeArrayCodec(std::uint64_t row_bytes);

}  // namespace headrace
