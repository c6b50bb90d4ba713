#include "codec/image/tiff_decoder.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiff.h>

#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"
#include "codec/image/whole_image.h"
#include "codec/tiff/tiff_deflate.h"

namespace headrace {
namespace {

using test::EncodePng;
using test::EncodeTiff;
using test::MakeTexture;
using test::RgbImage;
using test::StoredAlpha;
using test::TiffOptions;
using testing::HasSubstr;

using Encoded = std::vector<std::byte>;
constexpr std::uint64_t kTiffPixelsMax = 1 << 20;

struct DecodedTiff {
  Status status;
  RgbImage image;
};

DecodedTiff DecodeTiff(const Encoded& encoded, std::uint64_t pixels_max = kTiffPixelsMax) {
  DecodedTiff decoded;
  ScratchLimit limit;
  const auto room = [&](std::uint32_t height, std::uint32_t width) {
    decoded.image = {width, height, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
    return reinterpret_cast<std::byte*>(decoded.image.pixels.data());
  };
  decoded.status = DecodeWholeImage(encoded, pixels_max, limit, room);
  return decoded;
}

// The pixels that an image of these options holds.
RgbImage Expected(const RgbImage& image, const TiffOptions& options) {
  RgbImage expected = image;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const unsigned depth = std::min(options.bits, 8U);
    const unsigned red = image.pixels[i / 3 * 3];
    const unsigned index = red / 16 & ((1U << depth) - 1);
    const unsigned grey = (red >> (8 - depth)) * 255 / ((1U << depth) - 1);
    const unsigned colours[3] = {255 - 3 * index, index, 7 * index & 255};
    const auto x = static_cast<std::uint32_t>(i / 3 % image.width);
    const auto y = static_cast<std::uint32_t>(i / 3 / image.width);
    unsigned value = image.pixels[i];
    if (options.photometric == PHOTOMETRIC_PALETTE) value = colours[i % 3];
    if (options.photometric == PHOTOMETRIC_MINISBLACK) value = grey;
    if (options.photometric == PHOTOMETRIC_MINISWHITE) value = 255 - grey;
    if (options.samples == 4 && options.alpha == EXTRASAMPLE_ASSOCALPHA) {
      const unsigned alpha = StoredAlpha(x, y);
      value = alpha == 0 ? 0 : std::min(255U, value * 255 / alpha);
    }
    expected.pixels[i] = static_cast<std::uint8_t>(value);
  }
  return expected;
}

// One of each kind of pixels.
std::vector<TiffOptions> Kinds() {
  std::vector<TiffOptions> kinds;
  for (const unsigned photometric :
       std::array<unsigned, 2>{PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE}) {
    for (const unsigned bits : {1U, 2U, 4U, 8U, 16U}) {
      kinds.push_back({.photometric = photometric, .samples = 1, .bits = bits});
    }
    kinds.push_back({.photometric = photometric, .samples = 2});
  }
  for (const unsigned bits : {1U, 2U, 4U, 8U}) {
    kinds.push_back({.photometric = PHOTOMETRIC_PALETTE, .samples = 1, .bits = bits});
  }
  for (const unsigned samples : {3U, 4U}) {
    for (const unsigned bits : {8U, 16U}) kinds.push_back({.samples = samples, .bits = bits});
  }
  kinds.push_back({.samples = 4, .alpha = EXTRASAMPLE_ASSOCALPHA});
  return kinds;
}

TEST(TiffDecoderTest, EveryKindOfPixelsInEveryLayoutIsDecoded) {
  const RgbImage image = MakeTexture(45, 37);
  for (const TiffOptions& kind : Kinds()) {
    const RgbImage expected = Expected(image, kind);
    for (const char* mode : {"wl", "wb", "wl8", "wb8"}) {
      for (const bool planes : {false, true}) {
        for (const auto& [rows, width, height] : {std::tuple{16U, 0U, 0U},
                                                  {100U, 0U, 0U},
                                                  {1U, 0U, 0U},
                                                  {1U, 16U, 32U},
                                                  {1U, 64U, 16U},
                                                  {1U, 48U, 48U}}) {
          TiffOptions options = kind;
          options.mode = mode;
          options.planes = planes && kind.samples > 1;
          options.rows_per_strip = rows;
          options.tile_width = width;
          options.tile_height = height;
          if (options.planes && kind.alpha == EXTRASAMPLE_ASSOCALPHA) continue;
          const DecodedTiff decoded = DecodeTiff(EncodeTiff(image, options));
          ASSERT_EQ(decoded.status.ToString(), "OK");
          ASSERT_EQ(decoded.image, expected)
              << "photometric " << kind.photometric << ", " << kind.samples << " x " << kind.bits
              << " bits, mode " << mode << ", planes " << planes << ", strips of " << rows
              << ", tiles of " << width << " x " << height;
        }
      }
    }
  }
}

TEST(TiffDecoderTest, EveryCompressionGivesTheSamePixels) {
  const RgbImage image = MakeTexture(45, 37);
  for (const unsigned compression : std::array<unsigned, 4>{
           COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE, COMPRESSION_PACKBITS}) {
    for (const TiffOptions& kind : Kinds()) {
      for (const bool differences : {false, true}) {
        const bool can_differ = compression != COMPRESSION_PACKBITS && kind.bits >= 8;
        if (differences && !can_differ) continue;
        TiffOptions options = kind;
        options.compression = compression;
        options.differences = differences;
        const DecodedTiff decoded = DecodeTiff(EncodeTiff(image, options));
        ASSERT_EQ(decoded.status.ToString(), "OK") << compression;
        ASSERT_EQ(decoded.image, Expected(image, kind)) << compression;
      }
    }
  }
  for (const unsigned compression : std::array<unsigned, 3>{
           COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4}) {
    const TiffOptions options = {
        .photometric = PHOTOMETRIC_MINISWHITE, .samples = 1, .bits = 1, .compression = compression};
    const DecodedTiff decoded = DecodeTiff(EncodeTiff(image, options));
    ASSERT_EQ(decoded.status.ToString(), "OK") << compression;
    ASSERT_EQ(decoded.image, Expected(image, options)) << compression;
  }
}

TEST(TiffDecoderTest, ACropEqualsTheSameCropOfAFullDecode) {
  ImageTransform transform;
  transform.random_resized_crop.emplace();
  transform.height = 9;
  transform.width = 11;
  const auto codec = MakeImageCodec(transform).value();
  const RgbImage image = MakeTexture(75, 63);
  const Encoded pixels = EncodePng(image);
  for (const TiffOptions& options :
       {TiffOptions{}, TiffOptions{.rows_per_strip = 63}, TiffOptions{.planes = true},
        TiffOptions{.tile_width = 16, .tile_height = 16},
        TiffOptions{.planes = true, .tile_width = 32, .tile_height = 16},
        TiffOptions{.compression = COMPRESSION_LZW, .tile_width = 128, .tile_height = 64}}) {
    const Encoded encoded = EncodeTiff(image, options);
    for (std::uint64_t sample = 0; sample < 60; ++sample) {
      Encoded row(codec->RowBytes(0));
      Encoded expected(row.size());
      const SampleKey key{.seed = 3, .sample = SampleId{sample}};
      ASSERT_EQ(codec->Decode(encoded, key, row).ToString(), "OK");
      ASSERT_EQ(codec->Decode(pixels, key, expected).ToString(), "OK");
      ASSERT_EQ(row, expected) << sample;
    }
  }
}

TEST(TiffDecoderTest, AKindThatIsNotDecodedIsRefusedByName) {
  const RgbImage image = MakeTexture(20, 10);
  const auto expect = [&](const TiffOptions& options, const std::string& says) {
    const Encoded encoded = EncodeTiff(image, options);
    const Status status = DecodeTiff(encoded).status;
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_EQ(
        status.message(),
        "decoding TIFF image of 20 x 10 pixels: " + says +
            "; convert it to one page of grey or RGB with 8 bits, or leave it to Pillow and a "
            "Python transform");
    EXPECT_TRUE(IsRefusedTiff(encoded)) << says;
    EXPECT_TRUE(IsImageOfOtherKind(encoded)) << says;
  };
  expect({.pages = 2}, "several pages are not decoded");
  expect({.orientation = 6}, "orientation 6 is not decoded");
  expect({.photometric = PHOTOMETRIC_SEPARATED, .samples = 4}, "colours of CMYK are not decoded");
  expect({.photometric = PHOTOMETRIC_CIELAB}, "colours of CIE L*a*b* are not decoded");
  expect({.photometric = PHOTOMETRIC_MINISBLACK, .samples = 1, .sample_format = SAMPLEFORMAT_INT},
         "samples that are signed or floating-point are not decoded");
  expect({.samples = 4, .bits = 16, .alpha = EXTRASAMPLE_ASSOCALPHA},
         "colours that are multiplied with alpha are decoded from RGB of 8 bits only");
  expect({.photometric = PHOTOMETRIC_MINISBLACK, .samples = 5},
         "5 samples of 8 bits in a pixel of this kind are not decoded");
  expect({.compression = COMPRESSION_LZMA}, "compression by LZMA is not decoded");
  EXPECT_FALSE(IsRefusedTiff(EncodeTiff(image)));
  EXPECT_FALSE(IsImageOfOtherKind(EncodeTiff(image)));
}

TEST(TiffDecoderTest, EveryTruncationIsDataLoss) {
  const RgbImage image = MakeTexture(40, 30);
  for (const unsigned compression : std::array<unsigned, 2>{COMPRESSION_NONE, COMPRESSION_LZW}) {
    const Encoded whole = EncodeTiff(image, {.compression = compression});
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + bytes / 16) {
      const Encoded cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      ASSERT_EQ(DecodeTiff(cut).status.code(), StatusCode::kDataLoss) << bytes;
      ASSERT_FALSE(IsRefusedTiff(cut)) << bytes;
    }
  }
}

// The value of an entry of the directory of a little-endian TIFF, of one value that lies in it.
std::byte* ValueOf(Encoded& encoded, std::uint16_t tag) {
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::size_t value = 0;
    for (std::size_t i = bytes; i > 0; --i) {
      value = value << 8 | std::to_integer<std::size_t>(encoded[at + i - 1]);
    }
    return value;
  };
  const std::size_t directory = number(4, 4);
  for (std::size_t i = 0; i < number(directory, 2); ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (number(entry, 2) == tag) return encoded.data() + entry + 8;
  }
  return nullptr;
}

TEST(TiffDecoderTest, AnImageThatClaimsMorePixelsThanItHasTakesNoMemoryForThem) {
  const RgbImage image = MakeTexture(40, 30);
  for (const std::uint16_t tag :
       std::array<std::uint16_t, 2>{TIFFTAG_IMAGEWIDTH, TIFFTAG_IMAGELENGTH}) {
    for (const bool all : {false, true}) {
      Encoded encoded = EncodeTiff(image, {.compression = COMPRESSION_LZW});
      std::byte* const value = ValueOf(encoded, tag);
      ASSERT_NE(value, nullptr);
      value[1] = all ? std::byte{0xFF} : std::byte{0x40};
      value[0] = std::byte{0xFF};
      const Status status = DecodeTiff(encoded, std::uint64_t{1} << 40).status;
      EXPECT_NE(status.code(), StatusCode::kOk) << status.ToString();
    }
  }
}

TEST(TiffDecoderTest, AStripOutsideTheFileIsNamed) {
  Encoded encoded = EncodeTiff(MakeTexture(40, 30), {.rows_per_strip = 30});
  std::byte* const offset = ValueOf(encoded, TIFFTAG_STRIPOFFSETS);
  ASSERT_NE(offset, nullptr);
  offset[2] = std::byte{1};  // 65536 bytes further
  const std::string message(DecodeTiff(encoded).status.message());
  EXPECT_THAT(message, HasSubstr("40 x 30 pixels: truncated: strip 0 has "));
  EXPECT_THAT(message, HasSubstr("the file has " + std::to_string(encoded.size())));
}

TEST(TiffDecoderTest, DamagedPixelsAreAnErrorOfTheirStripOnly) {
  Encoded encoded = EncodeTiff(MakeTexture(64, 64), {.compression = COMPRESSION_ADOBE_DEFLATE});
  std::fill_n(encoded.begin() + 12, 20, std::byte{0xA5});  // in the first strip
  const Status status = DecodeTiff(encoded).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 x 64 pixels: strip 0: "));
}

// Some writers fill the last strip up to the rows that a strip has.
TEST(TiffDecoderTest, RowsBelowTheImageAreDropped) {
  const RgbImage image = MakeTexture(45, 37);
  for (const unsigned compression : std::array<unsigned, 4>{
           COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE}) {
    for (const TiffOptions& kind : Kinds()) {
      for (const std::uint32_t rows : {16U, 36U, 100U}) {
        TiffOptions options = kind;
        options.compression = compression;
        options.differences = compression != COMPRESSION_NONE && kind.bits >= 8;
        options.rows_per_strip = rows;
        options.whole_strips = true;
        const DecodedTiff decoded = DecodeTiff(EncodeTiff(image, options));
        ASSERT_EQ(decoded.status.ToString(), "OK") << compression << ", " << rows;
        ASSERT_EQ(decoded.image, Expected(image, kind)) << compression << ", " << rows;
      }
    }
  }
}

TEST(TiffDecoderTest, BitsInTheOtherOrderAreTurned) {
  const RgbImage image = MakeTexture(45, 37);
  for (const unsigned compression :
       std::array<unsigned, 3>{COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE}) {
    const TiffOptions options{.compression = compression, .bit_order = FILLORDER_LSB2MSB};
    const DecodedTiff decoded = DecodeTiff(EncodeTiff(image, options));
    ASSERT_EQ(decoded.status.ToString(), "OK") << compression;
    ASSERT_EQ(decoded.image, image) << compression;
  }
}

TEST(TiffDecoderTest, NoByteOfAStripByDeflateChangesPixelsUnnoticed) {
  const RgbImage image = MakeTexture(20, 13);
  for (const bool whole_strips : {false, true}) {
    const Encoded good = EncodeTiff(image, {.compression = COMPRESSION_ADOBE_DEFLATE,
                                            .differences = true,
                                            .rows_per_strip = 8,
                                            .whole_strips = whole_strips});
    Encoded encoded = good;
    const std::size_t strips = std::to_integer<std::size_t>(good[4]) |
                               std::to_integer<std::size_t>(good[5]) << 8;  // up to the directory
    int errors = 0;
    for (std::size_t at = 8; at < strips; ++at) {
      for (const unsigned flipped : {0x01U, 0x10U, 0xFFU}) {
        encoded[at] = good[at] ^ static_cast<std::byte>(flipped);
        const DecodedTiff decoded = DecodeTiff(encoded);
        if (decoded.status.ok()) {
          ASSERT_EQ(decoded.image, image) << at;
        } else {
          ASSERT_EQ(decoded.status.code(), StatusCode::kDataLoss) << at;
          ++errors;
        }
      }
      encoded[at] = good[at];
    }
    EXPECT_GT(errors, 1000);
  }
}

TEST(TiffDecoderTest, AStripOfFarMoreRowsIsDataLoss) {
  // 40 rows in one strip of an image that says that it has 5.
  Encoded encoded = EncodeTiff(MakeTexture(30, 40),
                               {.compression = COMPRESSION_ADOBE_DEFLATE, .rows_per_strip = 40});
  *ValueOf(encoded, TIFFTAG_IMAGELENGTH) = std::byte{5};
  const Status status = DecodeTiff(encoded).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("30 x 5 pixels: strip 0: it decodes to "));
}

TEST(TiffDecoderTest, APredictorThatIsNotKnownIsNamed) {
  Encoded encoded = EncodeTiff(MakeTexture(30, 20),
                               {.compression = COMPRESSION_ADOBE_DEFLATE, .differences = true});
  *ValueOf(encoded, TIFFTAG_PREDICTOR) = std::byte{3};
  EXPECT_THAT(
      std::string(DecodeTiff(encoded).status.message()),
      HasSubstr("30 x 20 pixels: strip 0: predictor 3 is not decoded; save the image without"));
  EXPECT_EQ(DecodeDeflateCell({}, {.bits = 4, .predictor = PREDICTOR_HORIZONTAL}, {}).message(),
            "differences of samples of 4 bits are not decoded; save the image without a predictor");
}

TEST(TiffDecoderTest, ATileOfFarMorePixelsThanTheImageIsNamed) {
  Encoded encoded = EncodeTiff(MakeTexture(40, 30), {.tile_width = 16, .tile_height = 16});
  std::byte* const height = ValueOf(encoded, TIFFTAG_TILELENGTH);
  ASSERT_NE(height, nullptr);
  height[1] = std::byte{0xFF};
  const Status status = DecodeTiff(encoded, 10'000).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tiles of 16 x 65296 pixels, a tile may have 1 to 10000"));
}

TEST(TiffDecoderTest, TheSizeIsCheckedBeforeAnythingIsDecoded) {
  const Encoded encoded = EncodeTiff(MakeTexture(31, 20));
  EXPECT_EQ(DecodeTiff(encoded, 620).status.ToString(), "OK");
  const Status status = DecodeTiff(encoded, 619).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("31 x 20 pixels: more than pixels_max"));
}

}  // namespace
}  // namespace headrace
