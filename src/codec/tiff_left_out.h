#pragma once

// What a build without libtiff (HEADRACE_TIFF=OFF) says in the place of image/tiff_decoder.h.

#include <cstddef>
#include <span>

#include "headrace/status.h"

namespace headrace {

// The DataLoss error for bytes that begin as a TIFF file does, with the remedies.
Status TiffIsLeftOut(std::span<const std::byte> encoded);

}  // namespace headrace
