#pragma once

#include <cstddef>
#include <span>

#include "headrace/status.h"

namespace headrace::internal {

// Decompresses a snappy block, as Decompress() specifies: the format of Google's
// format_description.txt, without a frame.
Status DecompressSnappy(std::span<const std::byte> encoded, std::span<std::byte> decoded);

}  // namespace headrace::internal
