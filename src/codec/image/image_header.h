#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "codec/image/geometry.h"
#include "headrace/part_options.h"

namespace headrace {

// What the first bytes of an encoded image say.
struct ImageHeader {
  ImageSize size;  // both sides at least 1
};

// The header lies further on: read from this byte of the image on.
struct HeaderFurtherOn {
  std::uint64_t at = 0;
};

// Bytes that are enough for a look, but where segments of a JPEG are longer.
inline constexpr std::uint64_t kHeaderLookBytes = 1024;

// Looks for the size of an image in its bytes from `at` on, of which `bytes` are a part: 0, or what
// a former look returned. Returns std::monostate if it is unknown: of no format that says its size
// in its first bytes (JPEG, PNG, WebP), damaged or truncated. The image may be of a kind that is
// not decoded, or damaged behind.
using HeaderLook = std::variant<std::monostate, ImageHeader, HeaderFurtherOn>;
HeaderLook LookAtHeader(std::span<const std::byte> bytes, std::uint64_t at);

// Bytes of the image in decoded form, if each row that `transform` can make of it is the same as of
// the encoded bytes; 0: it may differ, if its format is scaled, or the image is too large.
std::uint64_t FormBytesFor(ImageSize size, const ImageTransform& transform);

// Pixels that take more than this stay encoded.
inline constexpr std::uint64_t kFormBytesMax = std::uint64_t{64} << 20;

}  // namespace headrace
