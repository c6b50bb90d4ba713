#pragma once

// What a build without libtiff (HEADRACE_TIFF=OFF) has in the place of tiff_decoder.h.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a TIFF file does: DataLoss, which says the remedies.
Result<std::unique_ptr<ImageDecoder>> RefuseTiff(std::span<const std::byte> encoded,
                                                 std::uint64_t pixels_max);

// Other programs may decode all of them.
bool IsTiffLeftOut(std::span<const std::byte> encoded);

}  // namespace headrace
