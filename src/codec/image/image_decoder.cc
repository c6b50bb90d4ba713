#include "codec/image/image_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/format/errors.h"
#include "base/units.h"
#include "codec/image/jpeg_decoder.h"
#include "codec/image/png_decoder.h"
#include "codec/image/tiff_decoder.h"
#include "codec/image/webp_decoder.h"
#include "codec/jpeg/jpeg_decompressor.h"
#include "codec/tiff_left_out.h"

namespace headrace {
namespace {

using std::string_view_literals::operator""sv;

// A format, known by its first bytes.
struct ImageFormat {
  std::string_view name;
  bool (*matches)(std::string_view bytes);
  Result<std::unique_ptr<ImageDecoder>> (*open)(std::span<const std::byte> encoded,
                                                std::uint64_t pixels_max);
  // Whether `open` refuses the kind of the image; null: kinds that it refuses count as damaged.
  bool (*refuses)(std::span<const std::byte> encoded) = nullptr;
};

bool IsJpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"sv); }

bool IsPng(std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1A\n"sv); }

bool IsTiff(std::string_view bytes) {
  constexpr std::array kBegins = {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv};
  return std::any_of(kBegins.begin(), kBegins.end(),
                     [bytes](std::string_view begin) { return bytes.starts_with(begin); });
}

bool IsWebp(std::string_view bytes) {
  return bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv);
}

#ifdef HEADRACE_WITHOUT_TIFF
Result<std::unique_ptr<ImageDecoder>> RefuseTiff(std::span<const std::byte> encoded,
                                                 std::uint64_t /*pixels_max*/) {
  return TiffIsLeftOut(encoded);
}

bool IsTiffRefused(std::span<const std::byte> /*encoded*/) { return true; }

constexpr ImageFormat kTiff{"TIFF", IsTiff, RefuseTiff, IsTiffRefused};
#else
constexpr ImageFormat kTiff{"TIFF", IsTiff, OpenTiff, IsRefusedTiff};
#endif

// In the order of messages.
constexpr std::array kFormats = {
    ImageFormat{"JPEG", IsJpeg, OpenJpeg},
    ImageFormat{"PNG", IsPng, OpenPng},
    ImageFormat{"WebP", IsWebp, OpenWebp, IsRefusedWebp},
    kTiff,
};

const ImageFormat* FormatOf(std::span<const std::byte> encoded) {
  const std::string_view bytes(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  for (const ImageFormat& format : kFormats) {
    if (format.matches(bytes)) return &format;
  }
  return nullptr;
}

// "JPEG, PNG, WebP nor TIFF".
std::string NamesOfFormats() {
  std::string names;
  for (const ImageFormat& format : kFormats) {
    if (!names.empty()) names += &format == &kFormats.back() ? " nor " : ", ";
    names += format.name;
  }
  return names;
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
  const ImageFormat* const format = FormatOf(encoded);
  if (format != nullptr) return format->open(encoded, pixels_max);
  return DataLoss("decoding image of {}: neither {}, it begins with {}",
                  Counted(encoded.size(), "byte"), NamesOfFormats(), HexOfStart(encoded));
}

bool IsRefusedImage(std::span<const std::byte> encoded) {
  const ImageFormat* const format = FormatOf(encoded);
  return format != nullptr && format->refuses != nullptr && format->refuses(encoded);
}

Status PrepareImageDecoders(std::size_t threads) { return JpegDecompressor::Prepare(threads); }

bool DecodesTiff() {
#ifdef HEADRACE_WITHOUT_TIFF
  return false;
#else
  return true;
#endif
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
