#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/status.h"

namespace headrace {

// How the bytes of a file encode those of its object.
enum class Coding : unsigned char {
  kStored,  // they are the same
  kZstd,    // zstd frames, end to end
  kGzip,    // gzip members, end to end
};

// "stored", "zstd", "gzip".
//
// Errors: InvalidArgument  no coding of that name
Result<Coding> CodingOf(std::string_view name);

// Fills all of `decoded` from all of `encoded`. Memory of the decoder: below 1 MiB.
//
// Errors: DataLoss           damaged, truncated, or of another size than `decoded`
//         ResourceExhausted  out of memory
Status Decompress(Coding coding, std::span<const std::byte> encoded, std::span<std::byte> decoded);

}  // namespace headrace
