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
// blended, as Pillow's convert("RGB") does; of 16 bits the upper 8 are taken; gamma is not applied.
// Rows are decoded down to the last one wanted, an interlaced image altogether.
Result<std::unique_ptr<ImageDecoder>> OpenPng(std::span<const std::byte> encoded,
                                              std::uint64_t pixels_max);

}  // namespace headrace
