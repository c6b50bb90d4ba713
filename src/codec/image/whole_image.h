#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "codec/codec.h"
#include "headrace/part_options.h"
#include "headrace/status.h"

namespace headrace {

// Decodes every pixel of an image: rows from the top, RGB, 8 bits a channel. Calls `room`
// once, when the size is known. `room` returns a buffer of 3 * height * width bytes, or null: then
// the pixels are not kept, and the call only checks that the image decodes.
//
// Thread safety: may be called from any number of threads at once.
// Errors: DataLoss           of no format or kind that is decoded, truncated or damaged
//         InvalidArgument    more than `pixels_max` pixels
//         ResourceExhausted  it needs more memory than `limit` allows; nothing was allocated
Status DecodeWholeImage(
    std::span<const std::byte> encoded, std::uint64_t pixels_max, ScratchLimit& limit,
    const std::function<std::byte*(std::uint32_t height, std::uint32_t width)>& room);

// Whether `encoded` is an image that is not decoded here, but by other programs: it begins as a BMP
// or PNM does, or OpenImage() refuses its kind.
bool IsImageOfOtherKind(std::span<const std::byte> encoded);

// Copies the stored bytes, and decodes each image once to check it. `images` must not be kUnchecked
// (use MakeBytesCodec()).
std::unique_ptr<FieldCodec> MakeCheckedImageCodec(EncodedImages images);

}  // namespace headrace
