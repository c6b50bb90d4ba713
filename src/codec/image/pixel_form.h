#pragma once

// The decoded form of an image: width and height, 4 bytes each, little-endian; then its rows from
// the top, RGB, 8 bits a channel.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/image/image_decoder.h"
#include "headrace/status.h"

namespace headrace {

inline constexpr std::uint64_t kPixelFormHeaderBytes = 8;

// Bytes of the form of an image of `size`.
constexpr std::uint64_t PixelFormBytes(ImageSize size) {
  return kPixelFormHeaderBytes + kPixelBytes * std::uint64_t{size.width} * size.height;
}

// Fills `form`, of PixelFormBytes(size) bytes, from a decoder that was opened and not started. The
// caller has checked the memory of a full decode.
//
// Errors: those of ImageDecoder
Status FillPixelForm(ImageDecoder& decoder, std::span<std::byte> form);

// "Decodes" the form. The bytes must outlive the decoder.
//
// Errors: DataLoss  the length contradicts the size
Result<std::unique_ptr<ImageDecoder>> OpenPixelForm(std::span<const std::byte> form);

}  // namespace headrace
