#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/coding/coding.h"
#include "headrace/status.h"

namespace headrace {

// Fills all of `decoded` from all of `encoded`. Writes nowhere else, whatever `encoded` is.
//
// Memory: DecompressBytesMax(coding).
// Errors: DataLoss           damaged, truncated, or of another size than `decoded`
//         ResourceExhausted  out of memory
Status Decompress(Coding coding, std::span<const std::byte> encoded, std::span<std::byte> decoded);

// Fills all of `decoded` from the beginning of a zlib stream. Bytes that it decodes to beyond
// these, at most `rest_bytes_max`, are checked and dropped; bytes behind the stream are not read.
//
// Memory: DecompressBytesMax(Coding::kZlib).
// Errors: DataLoss           damaged, truncated, or of fewer bytes, or of more than these
//         ResourceExhausted  out of memory
Status DecompressBeginning(std::span<const std::byte> zlib, std::span<std::byte> decoded,
                           std::uint64_t rest_bytes_max);

// What Decompress() allocates, at most.
std::uint64_t DecompressBytesMax(Coding coding);

// Undoes the shuffle filter of HDF5, which stores the first byte of each element, then the second
// of each, and so on; bytes beyond the last whole element follow as they are. `from` and `to` have
// the same size and do not overlap; `element_bytes` is at least 1.
void Unshuffle(std::span<const std::byte> from, std::uint64_t element_bytes,
               std::span<std::byte> to);

}  // namespace headrace
