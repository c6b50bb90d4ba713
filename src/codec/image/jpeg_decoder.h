#pragma once

// Decodes JPEG with libjpeg-turbo: accurate DCT and fancy upsampling, so that a full decode gives
// the same pixels as Pillow.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a JPEG file does.
//
// Supports grey, YCbCr, RGB, CMYK and YCCK (the last two inverted, as Adobe writes them) with 8
// bits per component, baseline or progressive, with any subsampling. Does not apply EXIF
// orientation. Decodes only the region if that gives the same pixels as a full decode; otherwise
// the whole image. An image without its end marker is decoded to its last row: a truncated one is
// an error for every region.
Result<std::unique_ptr<ImageDecoder>> OpenJpeg(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max);

}  // namespace headrace
