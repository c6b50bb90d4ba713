#pragma once

// tiff/ has what a TIFF stores: its pixels, and the strips that libtiff is not trusted with. This
// header: what the tags of a TIFF say of its pixels.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tiffio.h>

#include "codec/tiff/tiff_deflate.h"

namespace headrace {

// The value of a tag of 16 bits, or its default.
std::uint16_t TiffNumber(TIFF* tiff, std::uint32_t tag);

// How a TIFF stores its pixels, and their conversion to RGB.
//
// Thread safety: thread-compatible: const calls may be concurrent.
class TiffPixels {
 public:
  static constexpr std::size_t kRgbBytes = 3;  // of a converted pixel

  // Reads the tags of the current page.
  void ReadTags(TIFF* tiff);

  // Why images of this kind are not decoded; empty: they are.
  [[nodiscard]] std::string Refusal() const;

  // Reads the colours of values, of a kind without Refusal(). Returns false if there are none.
  bool ReadColours(TIFF* tiff);

  // Strips and tiles hold pixels whole, or one sample of each: a plane.
  [[nodiscard]] unsigned stored_planes() const { return separate_ ? samples_ : 1; }
  // Those that RGB depends on, the first: alpha is not read.
  [[nodiscard]] unsigned planes() const { return separate_ && is_rgb() ? kRgbBytes : 1; }
  // Of `pixels` in a row of a strip or tile.
  [[nodiscard]] std::uint64_t StoredBytes(std::uint32_t pixels) const;
  [[nodiscard]] bool is_fax() const;
  [[nodiscard]] bool is_deflate() const;
  // How a strip or tile by Deflate, of `pixels` in a row, stores them.
  [[nodiscard]] DeflateCell CellOf(TIFF* tiff, std::uint32_t pixels) const;

  // Converts `count` pixels of a stored row to RGB; of a kind with planes, the colour `plane` of
  // each.
  void Convert(const std::uint8_t* stored, unsigned plane, std::uint32_t count,
               std::uint8_t* rgb) const;

 private:
  [[nodiscard]] bool is_rgb() const { return photometric_ == PHOTOMETRIC_RGB; }
  [[nodiscard]] bool is_palette() const { return photometric_ == PHOTOMETRIC_PALETTE; }
  [[nodiscard]] std::string RefusalOfSamples() const;
  void ConvertColours(const std::uint8_t* stored, unsigned plane, std::uint32_t count,
                      std::uint8_t* rgb) const;

  std::uint16_t photometric_ = 0;
  std::uint16_t compression_ = 0;
  std::uint16_t orientation_ = 0;
  std::uint16_t format_ = 0;  // of samples: SAMPLEFORMAT_*
  std::uint16_t bits_ = 0;    // of a sample
  std::uint16_t samples_ = 0;
  bool separate_ = false;
  bool premultiplied_ = false;  // colours are multiplied with alpha
  std::array<std::array<std::uint8_t, kRgbBytes>, 256> colours_{};  // of grey and palettes
};

}  // namespace headrace
