#pragma once

// WebP by libwebp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a WebP file does.
//
// Decodes lossy and lossless images, the pixels equal to Pillow's. Alpha is dropped, not blended,
// as Pillow's convert("RGB") does: that of a lossy image is not even read. Animations are refused.
// Decodes rows down to the last one of the region, and its columns alone.
Result<std::unique_ptr<ImageDecoder>> OpenWebp(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max);

// Whether these bytes, which begin as a WebP file does, are an animation.
bool IsRefusedWebp(std::span<const std::byte> encoded);

}  // namespace headrace
