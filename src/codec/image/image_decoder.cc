#include "codec/image/image_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/format/errors.h"
#include "base/units.h"
#include "codec/image/jpeg_decoder.h"
#include "codec/image/png_decoder.h"

namespace headrace {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegMagic = {0xFF, 0xD8, 0xFF};
constexpr std::array<std::uint8_t, 8> kPngMagic = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

bool BeginsWith(std::span<const std::byte> bytes, std::span<const std::uint8_t> magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(), [](std::uint8_t a, std::byte b) {
           return a == std::to_integer<std::uint8_t>(b);
         });
}

// The first bytes, for a message: "47 49 46 38".
std::string HexOfStart(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes.first(std::min<std::size_t>(bytes.size(), 8))) {
    if (!hex.empty()) hex += ' ';
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return hex;
}

}  // namespace

Result<std::unique_ptr<ImageDecoder>> OpenImage(std::span<const std::byte> encoded,
                                                std::uint64_t pixels_max) {
  if (encoded.empty()) {
    return DataLoss("decoding image of 0 bytes: it is empty");
  }
  if (BeginsWith(encoded, kJpegMagic)) return OpenJpeg(encoded, pixels_max);
  if (BeginsWith(encoded, kPngMagic)) return OpenPng(encoded, pixels_max);
  return DataLoss("decoding image of {}: neither JPEG nor PNG, it begins with {}",
                  Counted(encoded.size(), "byte"), HexOfStart(encoded));
}

Status CheckPixels(ImageSize size, std::uint64_t pixels_max) {
  const std::uint64_t pixels = std::uint64_t{size.width} * size.height;
  const std::string decoding =
      fmt::format("decoding image of {} x {} pixels: ", size.width, size.height);
  if (pixels > pixels_max) {
    return InvalidArgument("{}more than pixels_max, which is {}; cut or resize the file", decoding,
                           pixels_max);
  }
  if (std::max(size.width, size.height) > kImageSideMax) {
    return InvalidArgument("{}a side longer than {} pixels is not decoded; cut or resize the file",
                           decoding, kImageSideMax);
  }
  return {};
}

std::uint64_t ImageScratchBytesMax(std::uint64_t pixels_max) {
  constexpr std::uint64_t kPixelBytesMax = 8;
  constexpr std::uint64_t kRowsBytes = 64 * kMiB;
  constexpr std::uint64_t kSidesMax = std::uint64_t{kImageSideMax} * kImageSideMax;
  return kRowsBytes + kPixelBytesMax * std::min(pixels_max, kSidesMax);
}

Status TakesTooMuch(ImageSize size, std::uint64_t bytes) {
  return ResourceExhausted("decoding image of {} x {} pixels takes {} of memory", size.width,
                           size.height, FormatBytes(bytes));
}

}  // namespace headrace
