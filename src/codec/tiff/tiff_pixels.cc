#include "codec/tiff/tiff_pixels.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint16_t kUnknown = 0xFFFF;
constexpr std::uint16_t kSamplesMax = 4;  // of a pixel

// By methods whose memory does not depend on what is stored.
bool IsDecompressed(std::uint16_t compression) {
  constexpr std::array<std::uint16_t, 8> kAll = {
      COMPRESSION_NONE,      COMPRESSION_LZW,      COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,
      COMPRESSION_CCITTFAX3, COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX4,     COMPRESSION_PACKBITS};
  return std::find(kAll.begin(), kAll.end(), compression) != kAll.end();
}

std::string NameOfCompression(std::uint16_t compression) {
  switch (compression) {
    case COMPRESSION_OJPEG:
    case COMPRESSION_JPEG:
      return "JPEG";
    case COMPRESSION_ZSTD:
      return "zstd";
    case COMPRESSION_LZMA:
      return "LZMA";
    case COMPRESSION_WEBP:
      return "WebP";
    default:
      return fmt::format("method {}", compression);
  }
}

std::string NameOfColours(std::uint16_t photometric) {
  switch (photometric) {
    case PHOTOMETRIC_SEPARATED:
      return "CMYK";
    case PHOTOMETRIC_YCBCR:
      return "YCbCr";
    case PHOTOMETRIC_CIELAB:
      return "CIE L*a*b*";
    case kUnknown:
      return "a kind that it does not say";
    default:
      return fmt::format("kind {}", photometric);
  }
}

}  // namespace

std::uint16_t TiffNumber(TIFF* tiff, std::uint32_t tag) {
  std::uint16_t value = 0;
  TIFFGetFieldDefaulted(tiff, tag, &value);
  return value;
}

void TiffPixels::ReadTags(TIFF* tiff) {
  photometric_ = kUnknown;
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric_);
  compression_ = TiffNumber(tiff, TIFFTAG_COMPRESSION);
  orientation_ = TiffNumber(tiff, TIFFTAG_ORIENTATION);
  format_ = TiffNumber(tiff, TIFFTAG_SAMPLEFORMAT);
  bits_ = TiffNumber(tiff, TIFFTAG_BITSPERSAMPLE);
  samples_ = TiffNumber(tiff, TIFFTAG_SAMPLESPERPIXEL);
  separate_ = TiffNumber(tiff, TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE && samples_ > 1;
  std::uint16_t extra = 0;
  std::uint16_t* kinds = nullptr;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &extra, &kinds);
  premultiplied_ = extra > 0 && kinds != nullptr && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
}

bool TiffPixels::is_fax() const {
  return compression_ == COMPRESSION_CCITTRLE || compression_ == COMPRESSION_CCITTFAX3 ||
         compression_ == COMPRESSION_CCITTFAX4;
}

bool TiffPixels::is_deflate() const {
  return compression_ == COMPRESSION_ADOBE_DEFLATE || compression_ == COMPRESSION_DEFLATE;
}

DeflateCell TiffPixels::CellOf(TIFF* tiff, std::uint32_t pixels) const {
  return {.row_bytes = StoredBytes(pixels),
          .bits = bits_,
          .step = separate_ ? 1U : samples_,
          .predictor = TiffNumber(tiff, TIFFTAG_PREDICTOR),
          .is_swapped = TIFFIsByteSwapped(tiff) != 0};
}

std::string TiffPixels::Refusal() const {
  if (orientation_ > ORIENTATION_TOPLEFT) {
    return fmt::format("orientation {} is not decoded", orientation_);
  }
  if (!IsDecompressed(compression_)) {
    return fmt::format("compression by {} is not decoded", NameOfCompression(compression_));
  }
  if (photometric_ > PHOTOMETRIC_PALETTE) {
    return fmt::format("colours of {} are not decoded", NameOfColours(photometric_));
  }
  return RefusalOfSamples();
}

std::string TiffPixels::RefusalOfSamples() const {
  if (format_ != SAMPLEFORMAT_UINT) {
    return "samples that are signed or floating-point are not decoded";
  }
  const bool few_bits = samples_ == 1 && (bits_ == 1 || bits_ == 2 || bits_ == 4);
  const bool can_be = few_bits || bits_ == 8 || (bits_ == 16 && !is_palette());
  const unsigned needed = is_rgb() ? kRgbBytes : 1;
  if (samples_ < needed || samples_ > kSamplesMax || !can_be || (is_fax() && bits_ != 1)) {
    return fmt::format("{} of {} in a pixel of this kind are not decoded",
                       Counted(samples_, "sample"), Counted(bits_, "bit"));
  }
  const bool can_divide = is_rgb() && bits_ == 8 && !separate_ && samples_ == kSamplesMax;
  if (premultiplied_ && !can_divide) {
    return "colours that are multiplied with alpha are decoded from RGB of 8 bits only";
  }
  return "";
}

bool TiffPixels::ReadColours(TIFF* tiff) {
  if (is_rgb()) return true;
  const unsigned count = 1U << std::min<unsigned>(bits_, 8);
  std::array<std::uint16_t*, kRgbBytes> map{};
  if (is_palette() && (TIFFGetField(tiff, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2]) == 0 ||
                       map[0] == nullptr || map[1] == nullptr || map[2] == nullptr)) {
    return false;
  }
  for (unsigned value = 0; value < count; ++value) {
    const unsigned light = value * 255 / (count - 1);
    const unsigned grey = photometric_ == PHOTOMETRIC_MINISWHITE ? 255 - light : light;
    for (std::size_t c = 0; c < kRgbBytes; ++c) {
      const unsigned colour = is_palette() ? map[c][value] >> 8U : grey;
      colours_[value][c] = static_cast<std::uint8_t>(colour);
    }
  }
  return true;
}

std::uint64_t TiffPixels::StoredBytes(std::uint32_t pixels) const {
  const std::uint64_t samples = separate_ ? 1 : samples_;
  return (pixels * samples * bits_ + 7) / 8;
}

// Samples of 16 bits are in the order of this machine, little-endian: the upper 8 come second.
void TiffPixels::Convert(const std::uint8_t* stored, unsigned plane, std::uint32_t count,
                         std::uint8_t* rgb) const {
  if (is_rgb()) {
    ConvertColours(stored, plane, count, rgb);
    return;
  }
  const std::size_t bytes = bits_ / 8;
  const std::size_t step = separate_ ? bytes : bytes * samples_;
  const unsigned mask = (1U << std::min<unsigned>(bits_, 8)) - 1;
  for (std::size_t x = 0; x < count; ++x, rgb += kRgbBytes) {
    const std::size_t bit = x * bits_;
    const unsigned value = bytes > 0 ? stored[x * step + bytes - 1]
                                     : (stored[bit / 8] >> (8 - bits_ - bit % 8)) & mask;
    std::copy_n(colours_[value].data(), kRgbBytes, rgb);
  }
}

void TiffPixels::ConvertColours(const std::uint8_t* stored, unsigned plane, std::uint32_t count,
                                std::uint8_t* rgb) const {
  const std::size_t bytes = bits_ / 8;
  stored += bytes - 1;
  if (separate_) {
    for (std::size_t x = 0; x < count; ++x) rgb[x * kRgbBytes + plane] = stored[x * bytes];
    return;
  }
  if (bytes == 1 && samples_ == kRgbBytes) {
    std::copy_n(stored, kRgbBytes * count, rgb);
    return;
  }
  const std::size_t step = bytes * samples_;
  for (std::size_t x = 0; x < count; ++x, stored += step, rgb += kRgbBytes) {
    for (std::size_t c = 0; c < kRgbBytes; ++c) rgb[c] = stored[c * bytes];
    if (!premultiplied_) continue;
    const unsigned alpha = stored[3];
    for (std::size_t c = 0; c < kRgbBytes; ++c) {
      const unsigned divided = alpha == 0 ? 0 : std::min(255U, rgb[c] * 255U / alpha);
      rgb[c] = static_cast<std::uint8_t>(divided);
    }
  }
}

}  // namespace headrace
