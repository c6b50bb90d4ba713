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

struct WebpOptions {
  bool lossless = false;
  bool alpha = false;  // noise
  float quality = 90;
};
std::vector<std::byte> EncodeWebp(const RgbImage& image, const WebpOptions& options = {});

// An animation of one frame.
std::vector<std::byte> EncodeWebpAnimation(const RgbImage& image);

struct TiffOptions {
  const char* mode = "wl";   // of TIFFClientOpen(): little-endian; "wb": big-endian; "w8": BigTIFF
  unsigned photometric = 2;  // PHOTOMETRIC_*
  unsigned samples = 3;      // of a pixel
  unsigned bits = 8;         // of a sample
  unsigned compression = 1;  // COMPRESSION_*
  bool differences = false;  // stored, of neighbours
  bool planes = false;
  std::uint32_t rows_per_strip = 16;
  std::uint32_t tile_width = 0;  // 0: strips
  std::uint32_t tile_height = 0;
  unsigned alpha = 2;  // EXTRASAMPLE_*, of the sample beyond the colours
  unsigned orientation = 1;
  unsigned sample_format = 1;  // SAMPLEFORMAT_*
  bool whole_strips = false;   // the last strip has rows below the image, too
  unsigned bit_order = 1;      // FILLORDER_*
  int pages = 1;
};
// Grey is the red channel; alpha is StoredAlpha(); indices are red / 16. Values are the upper bits
// of 8; of 16 bits, 8 are noise. The palette has 255 - 3i, i, 7i for index i.
std::vector<std::byte> EncodeTiff(const RgbImage& image, const TiffOptions& options = {});
unsigned StoredAlpha(std::uint32_t x, std::uint32_t y);

// A full decode by libwebp with default settings.
RgbImage DecodeWebpPlainly(std::span<const std::byte> encoded);

// A full decode by libjpeg with default settings, except that CMYK stays as stored. `halvings`
// reduce both sides in the DCT.
RgbImage DecodeJpegPlainly(std::span<const std::byte> encoded, unsigned halvings = 0);

}  // namespace headrace::test
