#pragma once

// Images for tests: generated, encoded and decoded with plain calls of the libraries.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headrace::test {

// Three bytes a pixel, row after row.
struct RgbImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> pixels;

  friend bool operator==(const RgbImage&, const RgbImage&) = default;
};

// Slopes, edges and noise, in colour: a wrong pixel shows.
RgbImage MakeTexture(std::uint32_t width, std::uint32_t height, std::uint32_t seed = 1);

struct JpegOptions {
  int quality = 90;
  int horizontal_sampling = 2;  // of the first component; the others have 1
  int vertical_sampling = 2;
  int components = 3;  // 1: the red channel as grey; 4: CMYK
  bool progressive = false;
  int restart_rows = 0;  // rows of blocks between restart markers
};
std::vector<std::byte> EncodeJpeg(const RgbImage& image, const JpegOptions& options = {});

struct PngOptions {
  int color_type = 2;  // SPNG_COLOR_TYPE_*
  int bit_depth = 8;
  bool interlaced = false;
  std::size_t profile_bytes = 0;  // of noise, as a colour profile; 0: none
  std::size_t text_bytes = 0;     // of one letter, compressed: 1,000 times smaller; 0: none
};
// Grey images are made from the red channel; alpha is noise; indices are red / 16.
std::vector<std::byte> EncodePng(const RgbImage& image, const PngOptions& options = {});

// A full decode by libjpeg with default settings, except that CMYK stays as stored. `halvings`
// reduce both sides in the DCT.
RgbImage DecodeJpegPlainly(std::span<const std::byte> encoded, unsigned halvings = 0);

}  // namespace headrace::test
