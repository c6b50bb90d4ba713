#pragma once

#include <cstdint>
#include <string_view>

#include "headrace/ids.h"
#include "headrace/status.h"

namespace headrace {

// "stored", "zstd", "zlib", "deflate", "snappy", "gzip".
std::string_view CodingName(Coding coding);

// Errors: InvalidArgument  no coding of that name
Result<Coding> CodingOf(std::string_view name);

// The most bytes that `encoded_bytes` bytes can decode to, whatever they are; at most 2^63.
std::uint64_t DecodedBytesMax(Coding coding, std::uint64_t encoded_bytes);

}  // namespace headrace
