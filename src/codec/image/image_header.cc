#include "codec/image/image_header.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "codec/image/pixel_form.h"

namespace headrace {
namespace {

using std::string_view_literals::operator""sv;

// Of JPEG, which alone is scaled. Its chroma at full resolution: then it is scaled soonest.
constexpr DecoderScaling kScalingMost = {.halvings_max = 3};

unsigned ByteAt(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<unsigned>(bytes[at]);
}

std::uint32_t BigEndian16(std::span<const std::byte> bytes, std::size_t at) {
  return ByteAt(bytes, at) << 8 | ByteAt(bytes, at + 1);
}

std::uint32_t LittleEndian(std::span<const std::byte> bytes, std::size_t at, unsigned count) {
  std::uint32_t number = 0;
  for (unsigned i = 0; i < count; ++i) number |= ByteAt(bytes, at + i) << (8 * i);
  return number;
}

HeaderLook Found(std::uint32_t width, std::uint32_t height) {
  if (width == 0 || height == 0) return {};
  return ImageHeader{.size = {.width = width, .height = height}};
}

// From a marker on. Frames begin with markers C0 to CF, but C4, C8 and CC.
HeaderLook LookAtJpeg(std::span<const std::byte> bytes, std::uint64_t at) {
  std::size_t here = 0;
  while (here + 4 <= bytes.size()) {
    if (ByteAt(bytes, here) != 0xFF) return {};
    const unsigned marker = ByteAt(bytes, here + 1);
    if (marker == 0xFF || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      here += marker == 0xFF ? 1 : 2;  // A filling byte; a marker without a segment.
      continue;
    }
    const std::uint32_t segment = BigEndian16(bytes, here + 2);
    if (marker == 0xD9 || marker == 0xDA || segment < 2) return {};
    if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC) {
      if (here + 9 > bytes.size()) break;
      return Found(BigEndian16(bytes, here + 7), BigEndian16(bytes, here + 5));
    }
    here += 2 + segment;
  }
  if (here == 0) return {};  // Truncated.
  return HeaderFurtherOn{.at = at + here};
}

HeaderLook LookAtPng(std::span<const std::byte> bytes, std::string_view text) {
  if (bytes.size() < 24 || text.substr(12, 4) != "IHDR"sv) return {};
  const std::uint32_t width = BigEndian16(bytes, 16) << 16 | BigEndian16(bytes, 18);
  const std::uint32_t height = BigEndian16(bytes, 20) << 16 | BigEndian16(bytes, 22);
  return Found(width, height);
}

HeaderLook LookAtWebp(std::span<const std::byte> bytes, std::string_view text) {
  if (bytes.size() < 30) return {};
  const std::string_view chunk = text.substr(12, 4);
  if (chunk == "VP8 "sv && text.substr(23, 3) == "\x9D\x01\x2A"sv) {
    return Found(LittleEndian(bytes, 26, 2) & 0x3FFF, LittleEndian(bytes, 28, 2) & 0x3FFF);
  }
  if (chunk == "VP8L"sv && ByteAt(bytes, 20) == 0x2F) {
    const std::uint32_t bits = LittleEndian(bytes, 21, 4);
    return Found((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1);
  }
  if (chunk == "VP8X"sv) {
    return Found(LittleEndian(bytes, 24, 3) + 1, LittleEndian(bytes, 27, 3) + 1);
  }
  return {};
}

}  // namespace

HeaderLook LookAtHeader(std::span<const std::byte> bytes, std::uint64_t at) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (at > 0) return LookAtJpeg(bytes, at);
  if (text.starts_with("\xFF\xD8\xFF"sv)) return LookAtJpeg(bytes, at);
  if (text.starts_with("\x89PNG\r\n\x1A\n"sv)) return LookAtPng(bytes, text);
  if (text.starts_with("RIFF"sv) && text.substr(0, 12).ends_with("WEBP"sv)) {
    return LookAtWebp(bytes, text);
  }
  return {};
}

std::uint64_t FormBytesFor(ImageSize size, const ImageTransform& transform) {
  const std::uint64_t bytes = PixelFormBytes(size);
  if (std::max(size.width, size.height) > kImageSideMax || bytes > kFormBytesMax) return 0;
  return MayBeScaled(transform, size, kScalingMost) ? 0 : bytes;
}

}  // namespace headrace
