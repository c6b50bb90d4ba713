#pragma once

// TIFF by libtiff.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"

namespace headrace {

// As OpenImage(), for bytes that begin as a TIFF file does.
//
// Decodes images of one page: grey of 1, 2, 4, 8 and 16 bits, palettes, RGB of 8 and 16 bits, with
// or without alpha; in strips or tiles; stored as they are, or by LZW, Deflate, PackBits and the
// codes of fax. The pixels equal Pillow's, except for grey of 16 bits: as in a PNG, its upper 8 are
// used. Other kinds are DataLoss, which says what the image has. Decodes the strips and tiles of
// the region; one that is truncated is an error for every region.
Result<std::unique_ptr<ImageDecoder>> OpenTiff(std::span<const std::byte> encoded,
                                               std::uint64_t pixels_max);

// Whether these bytes, which begin as a TIFF file does, are an image of a kind that OpenTiff()
// refuses, and not damaged.
bool IsRefusedTiff(std::span<const std::byte> encoded);

}  // namespace headrace
