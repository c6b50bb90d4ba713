#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace headrace {

// How bytes are compressed. Index files contain these numbers.
enum class Coding : std::uint8_t {
  kStored = 0,   // they are not
  kZstd = 1,     // zstd frames, end to end
  kZlib = 2,     // a deflate stream with the header and checksum of zlib
  kDeflate = 3,  // a deflate stream alone
  kSnappy = 4,   // a snappy block, without a frame
  kGzip = 5,     // gzip members, end to end
};
inline constexpr Coding kCodingLast = Coding::kGzip;

// "stored", "zstd", "zlib", "deflate", "snappy", "gzip".
std::string_view CodingName(Coding coding);

// Errors: InvalidArgument  no coding of that name
Result<Coding> CodingOf(std::string_view name);

// The most bytes that `encoded_bytes` bytes can decode to, whatever they are; at most 2^63.
std::uint64_t DecodedBytesMax(Coding coding, std::uint64_t encoded_bytes);

}  // namespace headrace
