#include "codec/image/test_images.h"

#include <algorithm>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <cstring>
#include <string>

#include <jpeglib.h>
#include <spng.h>

#include "base/check.h"
#include "base/prng.h"

namespace headrace::test {
namespace {

std::vector<std::byte> ToBytes(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

}  // namespace

RgbImage MakeTexture(std::uint32_t width, std::uint32_t height, std::uint32_t seed) {
  RgbImage image{width, height, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
  Prng prng(seed, 0, RandomStream::kAugment, 0);
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      std::uint8_t* pixel = image.pixels.data() + (std::size_t{y} * width + x) * 3;
      const std::uint32_t noise = prng.Next32();
      const bool edge = ((x / 7) ^ (y / 5)) % 3 == 0;
      pixel[0] = static_cast<std::uint8_t>((x * 5 + y * 3 + (noise & 31)) & 255);
      pixel[1] = static_cast<std::uint8_t>(edge ? 230 : 20 + ((noise >> 8) & 31));
      pixel[2] = static_cast<std::uint8_t>((y * 7 + (edge ? 90 : 0) + ((noise >> 16) & 63)) & 255);
    }
  }
  return image;
}

std::vector<std::byte> EncodeJpeg(const RgbImage& image, const JpegOptions& options) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = image.width;
  info.image_height = image.height;
  info.input_components = options.components;
  info.in_color_space = options.components == 1   ? JCS_GRAYSCALE
                        : options.components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.comp_info[0].h_samp_factor = options.components == 3 ? options.horizontal_sampling : 1;
  info.comp_info[0].v_samp_factor = options.components == 3 ? options.vertical_sampling : 1;
  info.restart_in_rows = options.restart_rows;
  if (options.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const auto components = static_cast<std::size_t>(options.components);
  std::vector<std::uint8_t> row(components * image.width);
  for (std::uint32_t y = 0; y < image.height; ++y) {
    for (std::uint32_t x = 0; x < image.width; ++x) {
      const std::uint8_t* pixel = image.pixels.data() + (std::size_t{y} * image.width + x) * 3;
      for (std::size_t c = 0; c < components; ++c) {
        row[x * components + c] = c < 3 ? pixel[c] : static_cast<std::uint8_t>(255 - x % 100);
      }
    }
    JSAMPROW rows[1] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::byte> encoded = ToBytes(memory, size);
  std::free(memory);
  return encoded;
}

namespace {

// Metadata of a PNG: spng_set_*() keep pointers to it.
struct ProfileAndText {
  explicit ProfileAndText(const PngOptions& options)
      : profile(options.profile_bytes, '\0'), letters(options.text_bytes, 'a') {
    Prng prng(3, 0, RandomStream::kAugment, 0);
    for (char& byte : profile) byte = static_cast<char>(prng.Next32() & 255);
  }

  void AddTo(spng_ctx* context) {
    if (!profile.empty()) {
      spng_iccp chunk{
          .profile_name = "noise", .profile_len = profile.size(), .profile = profile.data()};
      HEADRACE_CHECK(spng_set_iccp(context, &chunk) == 0);
    }
    if (!letters.empty()) {
      text = {.keyword = "Comment", .type = SPNG_ZTXT};
      text.length = letters.size();
      text.text = letters.data();
      HEADRACE_CHECK(spng_set_text(context, &text, 1) == 0);
    }
  }

  std::string profile;
  std::string letters;
  spng_text text{};
};

// One row of `image` as a PNG with `options` stores it before filtering.
std::vector<std::uint8_t> PngRow(const RgbImage& image, const PngOptions& options,
                                 std::uint32_t y) {
  const int type = options.color_type;
  const bool color = type == SPNG_COLOR_TYPE_TRUECOLOR || type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  const bool alpha =
      type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA || type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  const std::size_t channels = (color ? 3U : 1U) + (alpha ? 1U : 0U);
  const auto depth = static_cast<std::size_t>(options.bit_depth);
  std::vector<std::uint8_t> row((image.width * channels * depth + 7) / 8);
  for (std::uint32_t x = 0; x < image.width; ++x) {
    const std::uint8_t* pixel = image.pixels.data() + (std::size_t{y} * image.width + x) * 3;
    for (std::size_t c = 0; c < channels; ++c) {
      const bool is_alpha = alpha && c + 1 == channels;
      unsigned value = is_alpha ? (x * 37 + y) & 255 : pixel[c];
      if (type == SPNG_COLOR_TYPE_INDEXED) value = pixel[0] / 16;
      const std::size_t sample = x * channels + c;
      if (depth == 16) {
        row[sample * 2] = static_cast<std::uint8_t>(value);
        row[sample * 2 + 1] = static_cast<std::uint8_t>(value * 7 + x);
      } else if (depth == 8) {
        row[sample] = static_cast<std::uint8_t>(value);
      } else {
        const unsigned bits =
            type == SPNG_COLOR_TYPE_INDEXED ? value & ((1U << depth) - 1) : value >> (8 - depth);
        const std::size_t place = sample * depth;
        row[place / 8] =
            static_cast<std::uint8_t>(row[place / 8] | bits << (8 - depth - place % 8));
      }
    }
  }
  return row;
}

}  // namespace

std::vector<std::byte> EncodePng(const RgbImage& image, const PngOptions& options) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  HEADRACE_CHECK(spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1) == 0);
  spng_ihdr header{};
  header.width = image.width;
  header.height = image.height;
  header.bit_depth = static_cast<std::uint8_t>(options.bit_depth);
  header.color_type = static_cast<std::uint8_t>(options.color_type);
  header.interlace_method = options.interlaced ? 1 : 0;
  HEADRACE_CHECK(spng_set_ihdr(context, &header) == 0);
  if (options.color_type == SPNG_COLOR_TYPE_INDEXED) {
    spng_plte palette{};
    palette.n_entries = 1U << std::min(options.bit_depth, 4);
    for (std::uint32_t i = 0; i < palette.n_entries; ++i) {
      palette.entries[i] = {static_cast<std::uint8_t>(i * 16), static_cast<std::uint8_t>(255 - i),
                            static_cast<std::uint8_t>(i * i), 0};
    }
    HEADRACE_CHECK(spng_set_plte(context, &palette) == 0);
  }
  ProfileAndText beside(options);
  beside.AddTo(context);
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = 0; y < image.height; ++y) {
    const std::vector<std::uint8_t> row = PngRow(image, options, y);
    pixels.insert(pixels.end(), row.begin(), row.end());
  }
  HEADRACE_CHECK(spng_encode_image(context, pixels.data(), pixels.size(), SPNG_FMT_RAW,
                                   SPNG_ENCODE_FINALIZE) == 0);
  std::size_t size = 0;
  int error = 0;
  void* memory = spng_get_png_buffer(context, &size, &error);
  HEADRACE_CHECK(memory != nullptr && error == 0);
  std::vector<std::byte> encoded = ToBytes(memory, size);
  std::free(memory);
  spng_ctx_free(context);
  return encoded;
}

RgbImage DecodeJpegPlainly(std::span<const std::byte> encoded, unsigned halvings) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
  jpeg_read_header(&info, TRUE);
  info.scale_num = 8U >> halvings;
  info.scale_denom = 8;
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  RgbImage image{
      info.output_width, info.output_height,
      std::vector<std::uint8_t>(std::size_t{3} * info.output_width * info.output_height)};
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[1] = {image.pixels.data() + std::size_t{3} * image.width * info.output_scanline};
    jpeg_read_scanlines(&info, rows, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return image;
}

}  // namespace headrace::test
