#include "codec/image/test_images.h"

#include <algorithm>
#include <cstdio>  // jpeglib.h needs it
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <jpeglib.h>
#include <spng.h>
#include <tiffio.h>
#include <webp/decode.h>
#include <webp/encode.h>

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

std::vector<std::byte> EncodeWebp(const RgbImage& image, const WebpOptions& options) {
  std::vector<std::uint8_t> pixels;
  for (std::uint32_t y = 0; y < image.height; ++y) {
    for (std::uint32_t x = 0; x < image.width; ++x) {
      const std::uint8_t* pixel = image.pixels.data() + (std::size_t{y} * image.width + x) * 3;
      pixels.insert(pixels.end(), pixel, pixel + 3);
      if (options.alpha) pixels.push_back(static_cast<std::uint8_t>(StoredAlpha(x, y) | 1U));
    }
  }
  WebPConfig config{};
  WebPPicture picture{};
  WebPMemoryWriter writer{};
  HEADRACE_CHECK(WebPConfigInit(&config) != 0 && WebPPictureInit(&picture) != 0);
  WebPMemoryWriterInit(&writer);
  config.lossless = options.lossless ? 1 : 0;
  config.exact = 1;
  config.quality = options.quality;
  picture.use_argb = config.lossless;
  picture.width = static_cast<int>(image.width);
  picture.height = static_cast<int>(image.height);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  const int stride = picture.width * (options.alpha ? 4 : 3);
  HEADRACE_CHECK((options.alpha ? WebPPictureImportRGBA : WebPPictureImportRGB)(
                     &picture, pixels.data(), stride) != 0);
  HEADRACE_CHECK(WebPEncode(&config, &picture) != 0);
  std::vector<std::byte> encoded = ToBytes(writer.mem, writer.size);
  WebPPictureFree(&picture);
  WebPMemoryWriterClear(&writer);
  return encoded;
}

std::vector<std::byte> EncodeWebpAnimation(const RgbImage& image) {
  const std::vector<std::byte> still = EncodeWebp(image);
  constexpr std::size_t kFileHeader = 12;
  std::vector<std::byte> out;
  const auto text = [&](std::string_view name) {
    for (const char c : name) out.push_back(static_cast<std::byte>(c));
  };
  const auto number = [&](std::size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i) & 255));
  };
  const std::size_t frame = still.size() - kFileHeader;
  text("RIFF");
  number(4 + 18 + 14 + 24 + frame, 4);
  text("WEBPVP8X");
  number(10, 4);
  number(2, 4);  // an animation
  number(image.width - 1, 3);
  number(image.height - 1, 3);
  text("ANIM");
  number(6, 4);
  number(0, 6);
  text("ANMF");
  number(16 + frame, 4);
  number(0, 6);
  number(image.width - 1, 3);
  number(image.height - 1, 3);
  number(100, 4);
  out.insert(out.end(), still.begin() + kFileHeader, still.end());
  return out;
}

RgbImage DecodeWebpPlainly(std::span<const std::byte> encoded) {
  int width = 0;
  int height = 0;
  std::uint8_t* const pixels = WebPDecodeRGB(reinterpret_cast<const std::uint8_t*>(encoded.data()),
                                             encoded.size(), &width, &height);
  HEADRACE_CHECK(pixels != nullptr);
  RgbImage image{static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height), {}};
  image.pixels.assign(pixels, pixels + std::ptrdiff_t{3} * width * height);
  WebPFree(pixels);
  return image;
}

unsigned StoredAlpha(std::uint32_t x, std::uint32_t y) { return (x * 37 + y) & 255; }

namespace {

// A file in memory that libtiff writes.
struct TiffSink {
  std::vector<std::byte> bytes;
  std::size_t at = 0;

  static TiffSink& Of(thandle_t handle) { return *static_cast<TiffSink*>(handle); }
  static tmsize_t Read(thandle_t handle, void* to, tmsize_t count) {
    TiffSink& sink = Of(handle);
    const std::size_t rest = sink.bytes.size() - std::min(sink.at, sink.bytes.size());
    const std::size_t taken = std::min(rest, static_cast<std::size_t>(count));
    if (taken > 0) std::memcpy(to, sink.bytes.data() + sink.at, taken);
    sink.at += taken;
    return static_cast<tmsize_t>(taken);
  }
  static tmsize_t Write(thandle_t handle, void* from, tmsize_t count) {
    TiffSink& sink = Of(handle);
    const auto bytes = static_cast<std::size_t>(count);
    sink.bytes.resize(std::max(sink.bytes.size(), sink.at + bytes));
    if (bytes > 0) std::memcpy(sink.bytes.data() + sink.at, from, bytes);
    sink.at += bytes;
    return count;
  }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    TiffSink& sink = Of(handle);
    const std::size_t from = whence == SEEK_CUR ? sink.at : whence == SEEK_END ? Size(handle) : 0;
    sink.at = from + offset;
    return sink.at;
  }
  static int Close(thandle_t /*handle*/) { return 0; }
  static toff_t Size(thandle_t handle) { return Of(handle).bytes.size(); }
};

// The samples of planes [first, first + planes) of a strip or tile at x, y, as TIFF stores them.
// Pixels outside the image repeat those at its edge.
struct TiffCell {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  unsigned first = 0;
  unsigned planes = 1;
};

std::vector<std::uint8_t> TiffSamples(const RgbImage& image, const TiffOptions& options,
                                      const TiffCell& cell) {
  const unsigned colours = options.photometric == PHOTOMETRIC_RGB ? 3 : 1;
  const unsigned bits = options.bits;
  const std::size_t row_bytes = (std::size_t{cell.width} * cell.planes * bits + 7) / 8;
  std::vector<std::uint8_t> stored(row_bytes * cell.height);
  for (std::uint32_t row = 0; row < cell.height; ++row) {
    std::size_t bit = row * row_bytes * 8;
    const std::uint32_t y = std::min(cell.y + row, image.height - 1);
    for (std::uint32_t column = 0; column < cell.width; ++column) {
      const std::uint32_t x = std::min(cell.x + column, image.width - 1);
      const std::uint8_t* pixel = image.pixels.data() + (std::size_t{y} * image.width + x) * 3;
      for (unsigned c = cell.first; c < cell.first + cell.planes; ++c, bit += bits) {
        unsigned value = c < colours ? pixel[std::min(c, 2U)] : StoredAlpha(x, y);
        if (options.photometric == PHOTOMETRIC_PALETTE) value = c == 0 ? pixel[0] / 16 : value;
        std::uint8_t& to = stored[bit / 8];
        if (bits == 16) {  // as this machine has it: libtiff turns the bytes
          to = static_cast<std::uint8_t>(value * 5 + x);
          stored[bit / 8 + 1] = static_cast<std::uint8_t>(value);
        } else if (options.photometric == PHOTOMETRIC_PALETTE) {
          value &= (1U << bits) - 1;
          to = static_cast<std::uint8_t>(to | value << (8 - bits - bit % 8));
        } else {
          to = static_cast<std::uint8_t>(to | (value >> (8 - bits)) << (8 - bits - bit % 8));
        }
      }
    }
  }
  return stored;
}

void SetTiffTags(TIFF* tiff, const RgbImage& image, const TiffOptions& options) {
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, image.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, image.height);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, options.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, options.samples);
  TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, options.sample_format);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, options.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, options.compression);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, options.orientation);
  TIFFSetField(tiff, TIFFTAG_FILLORDER, options.bit_order);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG,
               options.planes ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  if (options.differences) TIFFSetField(tiff, TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
  const unsigned colours = options.photometric == PHOTOMETRIC_RGB         ? 3
                           : options.photometric == PHOTOMETRIC_SEPARATED ? 4
                                                                          : 1;
  if (options.samples > colours) {
    const auto kind = static_cast<std::uint16_t>(options.alpha);
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &kind);
  }
  if (options.photometric == PHOTOMETRIC_PALETTE) {
    std::vector<std::uint16_t> map(std::size_t{3} << options.bits);
    const std::size_t count = map.size() / 3;
    for (std::size_t i = 0; i < count; ++i) {
      map[i] = static_cast<std::uint16_t>((255 - 3 * i) << 8);
      map[count + i] = static_cast<std::uint16_t>(i << 8);
      map[2 * count + i] = static_cast<std::uint16_t>((7 * i & 255) << 8);
    }
    TIFFSetField(tiff, TIFFTAG_COLORMAP, map.data(), map.data() + count, map.data() + 2 * count);
  }
  if (options.tile_width > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, options.tile_width);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, options.tile_height);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, options.rows_per_strip);
  }
}

void WriteTiffCells(TIFF* tiff, const RgbImage& image, const TiffOptions& options) {
  const bool tiled = options.tile_width > 0;
  const std::uint32_t width = tiled ? options.tile_width : image.width;
  const std::uint32_t height = tiled ? options.tile_height : options.rows_per_strip;
  const unsigned planes = options.planes ? 1 : options.samples;
  std::uint32_t number = 0;
  for (unsigned first = 0; first < options.samples; first += planes) {
    for (std::uint32_t y = 0; y < image.height; y += height) {
      for (std::uint32_t x = 0; x < image.width; x += width) {
        const bool whole = tiled || options.whole_strips;
        const std::uint32_t rows = whole ? height : std::min(height, image.height - y);
        std::vector<std::uint8_t> stored =
            TiffSamples(image, options, {x, y, width, rows, first, planes});
        const auto bytes = static_cast<tmsize_t>(stored.size());
        const tmsize_t written = (tiled ? TIFFWriteEncodedTile : TIFFWriteEncodedStrip)(
            tiff, number++, stored.data(), bytes);
        HEADRACE_CHECK(written == bytes);
      }
    }
  }
}

}  // namespace

std::vector<std::byte> EncodeTiff(const RgbImage& image, const TiffOptions& options) {
  TIFFSetWarningHandler(nullptr);  // that Deflate has a newer name
  TiffSink sink;
  TIFF* const tiff =
      TIFFClientOpen("memory", options.mode, &sink, TiffSink::Read, TiffSink::Write, TiffSink::Seek,
                     TiffSink::Close, TiffSink::Size, nullptr, nullptr);
  HEADRACE_CHECK(tiff != nullptr);
  for (int page = 0; page < options.pages; ++page) {
    SetTiffTags(tiff, image, options);
    WriteTiffCells(tiff, image, options);
    HEADRACE_CHECK(TIFFWriteDirectory(tiff) != 0);
  }
  TIFFClose(tiff);
  return sink.bytes;
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
