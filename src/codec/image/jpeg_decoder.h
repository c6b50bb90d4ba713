#pragma once

// JPEG by libjpeg-turbo: accurate DCT, fancy upsampling, so that a full decode equals Pillow's.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a JPEG file does.
//
// Grey, YCbCr, RGB, CMYK and YCCK (the last two inverted, as Adobe writes them) of 8 bits, baseline
// or progressive, any subsampling. EXIF orientation is not applied. Decodes only the region if its
// pixels are then the same as from a full decode; otherwise everything. An image without its end
// marker is read to its last row, so that a truncated one is an error for every region.
Result<std::unique_ptr<ImageDecoder>> OpenJpeg(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max);

}  // namespace headrace
