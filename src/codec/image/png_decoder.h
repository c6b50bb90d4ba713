#pragma once

// PNG by libspng.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a PNG file does.
//
// Every colour type and depth becomes 8-bit RGB: alpha and transparent colours are dropped, not
// blended, as Pillow's convert("RGB") does; of 16 bits the upper 8 are used; gamma is not applied.
// Decodes rows down to the last one of the region, and all of an interlaced image.
Result<std::unique_ptr<ImageDecoder>> OpenPng(std::span<const std::byte> encoded,
                                              std::uint64_t pixels_max);

}  // namespace headrace
