#include "codec/image/image_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "codec/image/test_images.h"

namespace headrace {
namespace {

using test::DecodeJpegPlainly;
using test::EncodeJpeg;
using test::EncodePng;
using test::EncodeTiff;
using test::EncodeWebp;
using test::MakeTexture;
using test::RgbImage;

using Encoded = std::vector<std::byte>;

// The whole image as it is: uint8, [height, width, 3], nothing resampled.
ImageTransform Plain(std::uint32_t width, std::uint32_t height) {
  ImageTransform transform;
  transform.width = width;
  transform.height = height;
  transform.channels_first = false;
  transform.exact = true;
  return transform;
}

std::unique_ptr<FieldCodec> Make(const ImageTransform& transform) {
  Result<std::unique_ptr<FieldCodec>> codec = MakeImageCodec(transform);
  EXPECT_TRUE(codec.ok()) << codec.status().ToString();
  return std::move(codec).value();
}

struct Decoded {
  Status status;
  std::vector<std::uint8_t> bytes;
};

Decoded Decode(const FieldCodec& codec, const Encoded& encoded, const SampleKey& key = {}) {
  Decoded decoded;
  decoded.bytes.resize(codec.RowBytes(encoded.size()), 0xCD);
  decoded.status = codec.Decode(encoded, key, std::as_writable_bytes(std::span(decoded.bytes)));
  return decoded;
}

Decoded Decode(const ImageTransform& transform, const Encoded& encoded, const SampleKey& key = {}) {
  return Decode(*Make(transform), encoded, key);
}

std::vector<std::uint8_t> DecodeOrFail(const ImageTransform& transform, const Encoded& encoded,
                                       const SampleKey& key = {}) {
  Decoded decoded = Decode(transform, encoded, key);
  EXPECT_TRUE(decoded.status.ok()) << decoded.status.ToString();
  return std::move(decoded.bytes);
}

Status StatusOf(const ImageTransform& transform) { return MakeImageCodec(transform).status(); }

// --- pixels -------------------------------------------------------------------------------------

struct Golden {
  std::string_view name;
  std::uint32_t width;
  std::uint32_t height;
  std::uint32_t resize_shorter;
  std::string_view encoded;  // hexadecimal
  std::string_view pixels;   // hexadecimal
};

constexpr Golden kPillowGolden[] = {
#include "codec/image/testdata/pillow_golden.inc"
};

std::vector<std::uint8_t> FromHex(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(
        static_cast<std::uint8_t>(std::stoul(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Encoded ToEncoded(const std::vector<std::uint8_t>& bytes) {
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

TEST(ImageCodecTest, PixelsEqualPillows) {
  for (const Golden& golden : kPillowGolden) {
    ImageTransform transform = Plain(golden.width, golden.height);
    transform.resize_shorter = golden.resize_shorter;
    EXPECT_EQ(DecodeOrFail(transform, ToEncoded(FromHex(golden.encoded))), FromHex(golden.pixels))
        << golden.name;
  }
}

TEST(ImageCodecTest, AnImageOfTheRowsSizeIsWhatLibjpegDecodes) {
  for (const bool progressive : {false, true}) {
    const Encoded encoded = EncodeJpeg(MakeTexture(61, 47), {.progressive = progressive});
    EXPECT_EQ(DecodeOrFail(Plain(61, 47), encoded), DecodeJpegPlainly(encoded).pixels);
  }
}

TEST(ImageCodecTest, EverySubsamplingAndLayoutHoldsTheSamePixels) {
  const RgbImage image = MakeTexture(40, 30);
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}}) {
    const Encoded encoded =
        EncodeJpeg(image, {.horizontal_sampling = horizontal, .vertical_sampling = vertical});
    const std::vector<std::uint8_t> pixels = DecodeJpegPlainly(encoded).pixels;
    ImageTransform transform = Plain(40, 30);
    for (const double flip : {0.0, 1.0}) {
      transform.flip_probability = flip;
      transform.channels_first = false;
      const std::vector<std::uint8_t> last = DecodeOrFail(transform, encoded);
      transform.channels_first = true;
      const std::vector<std::uint8_t> first = DecodeOrFail(transform, encoded);
      for (std::size_t y = 0; y < 30; ++y) {
        for (std::size_t x = 0; x < 40; ++x) {
          for (std::size_t c = 0; c < 3; ++c) {
            const std::uint8_t expected = pixels[(y * 40 + (flip > 0 ? 39 - x : x)) * 3 + c];
            ASSERT_EQ(last[(y * 40 + x) * 3 + c], expected);
            ASSERT_EQ(first[(c * 30 + y) * 40 + x], expected);
          }
        }
      }
    }
  }
}

TEST(ImageCodecTest, FloatsAreNormalisedInTheOrderOfTorchvision) {
  ImageTransform transform = Plain(16, 8);
  const Encoded encoded = EncodePng(MakeTexture(16, 8));
  const std::vector<std::uint8_t> pixels = DecodeOrFail(transform, encoded);
  transform.to_float = true;
  transform.mean = {0.485F, 0.456F, 0.406F};
  transform.std = {0.229F, 0.224F, 0.225F};
  const auto codec = Make(transform);
  ASSERT_EQ(codec->RowBytes(1), pixels.size() * sizeof(float));
  std::vector<float> row(pixels.size());
  ASSERT_TRUE(codec->Decode(encoded, {}, std::as_writable_bytes(std::span(row))).ok());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t c = i % 3;
    ASSERT_EQ(row[i],
              (static_cast<float>(pixels[i]) / 255.0F - transform.mean[c]) / transform.std[c]);
  }
}

// Decoding a region and resampling it gives what resampling the whole decoded image gives: the
// whole is a PNG here, which is never decoded in part.
TEST(ImageCodecTest, ACropOfAJpegEqualsTheSameCropOfItsPixels) {
  ImageTransform transform = Plain(32, 24);
  transform.random_resized_crop.emplace();
  transform.flip_probability = 0.5;
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}}) {
    const Encoded jpeg = EncodeJpeg(
        MakeTexture(200, 150), {.horizontal_sampling = horizontal, .vertical_sampling = vertical});
    const Encoded png = EncodePng(DecodeJpegPlainly(jpeg));
    for (std::uint64_t i = 0; i < 60; ++i) {
      const SampleKey key{.seed = 11, .epoch = 1, .sample = SampleId{i}};
      ASSERT_EQ(DecodeOrFail(transform, jpeg, key), DecodeOrFail(transform, png, key)) << i;
    }
  }
}

TEST(ImageCodecTest, FastIsCloseToExactAndEqualWhereNothingIsHalved) {
  const RgbImage image = MakeTexture(320, 240);
  RgbImage smooth = image;
  for (std::uint32_t i = 0; i < smooth.pixels.size(); ++i) {
    const std::uint32_t pixel = i / 3;
    const std::uint32_t row = pixel / 320;
    const double x = pixel % 320;
    const double y = row;
    smooth.pixels[i] =
        static_cast<std::uint8_t>(128 + 60 * std::sin(x / 20) + 60 * std::cos(y / 9));
  }
  const Encoded encoded = EncodeJpeg(smooth, {.quality = 95});
  ImageTransform transform = Plain(41, 31);
  const std::vector<std::uint8_t> large = DecodeOrFail(transform, encoded);
  transform.exact = false;
  EXPECT_EQ(DecodeOrFail(transform, encoded), large);
  for (const std::uint32_t side : {30U, 15U, 7U}) {
    transform.width = side;
    transform.height = side;
    transform.exact = true;
    const std::vector<std::uint8_t> exact = DecodeOrFail(transform, encoded);
    transform.exact = false;
    const std::vector<std::uint8_t> fast = DecodeOrFail(transform, encoded);
    EXPECT_NE(fast, exact);
    int max = 0;
    for (std::size_t i = 0; i < fast.size(); ++i) {
      max = std::max(max, std::abs(int{fast[i]} - int{exact[i]}));
    }
    EXPECT_LE(max, 2) << side;
  }
}

TEST(ImageCodecTest, EveryPngKindDecodesInterlacedOrNot) {
  const RgbImage image = MakeTexture(37, 29);
  const std::vector<std::uint8_t> rgb = DecodeOrFail(Plain(37, 29), EncodePng(image));
  EXPECT_EQ(rgb, image.pixels);
  struct Kind {
    int color_type;
    int bit_depth;
  };
  for (const Kind kind : {Kind{0, 1},
                          {0, 2},
                          {0, 4},
                          {0, 8},
                          {0, 16},
                          {2, 8},
                          {2, 16},
                          {3, 1},
                          {3, 2},
                          {3, 4},
                          {3, 8},
                          {4, 8},
                          {4, 16},
                          {6, 8},
                          {6, 16}}) {
    const auto decode = [&](bool interlaced) {
      return DecodeOrFail(Plain(37, 29), EncodePng(image, {.color_type = kind.color_type,
                                                           .bit_depth = kind.bit_depth,
                                                           .interlaced = interlaced}));
    };
    const std::vector<std::uint8_t> pixels = decode(false);
    EXPECT_EQ(decode(true), pixels);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const unsigned red = image.pixels[i / 3 * 3];
      const unsigned depth = static_cast<unsigned>(std::min(kind.bit_depth, 8));
      const unsigned grey = (red >> (8 - depth)) * 255 / ((1U << depth) - 1);
      const unsigned index = red / 16 & ((1U << std::min(depth, 4U)) - 1);
      const unsigned entry[3] = {index * 16, 255 - index, index * index & 255};
      const bool is_color = kind.color_type == 2 || kind.color_type == 6;
      const unsigned expected = kind.color_type == 3 ? entry[i % 3]
                                : is_color           ? image.pixels[i]
                                                     : grey;
      ASSERT_EQ(pixels[i], expected) << kind.color_type << ", " << kind.bit_depth << " at " << i;
    }
  }
}

// --- determinism --------------------------------------------------------------------------------

TEST(ImageCodecTest, RowsAreTheSameOnEveryThreadInEveryOrder) {
  ImageTransform transform = Plain(48, 40);
  transform.random_resized_crop.emplace();
  transform.flip_probability = 0.5;
  transform.exact = false;
  const auto codec = Make(transform);
  std::vector<Encoded> images;
  for (std::uint32_t i = 0; i < 12; ++i) {
    const RgbImage image = MakeTexture(90 + 37 * i, 400 - 31 * i, i + 1);
    images.push_back(i % 4 == 3 ? EncodePng(image) : EncodeJpeg(image));
  }
  const auto decode_all = [&](std::size_t begin) {
    std::vector<std::vector<std::uint8_t>> rows(images.size());
    for (std::size_t n = 0; n < images.size(); ++n) {
      const std::size_t i = (begin + n) % images.size();
      rows[i] = Decode(*codec, images[i], {.seed = 4, .epoch = 2, .sample = SampleId{i}}).bytes;
    }
    return rows;
  };
  const auto expected = decode_all(0);
  std::vector<std::vector<std::vector<std::uint8_t>>> results(6);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < results.size(); ++t) {
      threads.emplace_back([&, t] { results[t] = decode_all(2 * t + 1); });
    }
  }
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

TEST(ImageCodecTest, EpochsAndSeedsDrawAnew) {
  ImageTransform transform = Plain(16, 16);
  transform.random_resized_crop.emplace();
  const Encoded encoded = EncodeJpeg(MakeTexture(100, 100));
  const std::vector<std::uint8_t> row = DecodeOrFail(transform, encoded, {.seed = 1});
  EXPECT_EQ(DecodeOrFail(transform, encoded, {.seed = 1}), row);
  EXPECT_NE(DecodeOrFail(transform, encoded, {.seed = 2}), row);
  EXPECT_NE(DecodeOrFail(transform, encoded, {.seed = 1, .epoch = 1}), row);
  EXPECT_NE(DecodeOrFail(transform, encoded, {.seed = 1, .sample = SampleId{1}}), row);
}

// --- refusals -----------------------------------------------------------------------------------

TEST(ImageCodecTest, NoBytesAndOtherFormatsAreDataLossThatSaysSo) {
  const ImageTransform transform = Plain(8, 8);
  const Status empty = Decode(transform, {}).status;
  EXPECT_EQ(empty.code(), StatusCode::kDataLoss);
  EXPECT_EQ(empty.message(), "decoding image of 0 bytes: it is empty");
  const Status gif = Decode(transform, ToEncoded({'G', 'I', 'F', '8', '9', 'a', 0, 1, 2})).status;
  EXPECT_EQ(gif.code(), StatusCode::kDataLoss);
  EXPECT_EQ(
      gif.message(),
      "decoding image of 9 bytes: neither JPEG, PNG, WebP nor TIFF, it begins with 47 49 46 38 39 "
      "61 00 01");
}

TEST(ImageCodecTest, AnImageBeyondThePixelLimitIsInvalidArgument) {
  ImageTransform transform = Plain(8, 8);
  transform.pixels_max = 600;
  for (const bool png : {false, true}) {
    const auto encode = [&](std::uint32_t width) {
      const RgbImage image = MakeTexture(width, 20);
      return png ? EncodePng(image) : EncodeJpeg(image);
    };
    EXPECT_TRUE(Decode(transform, encode(30)).status.ok());
    const Status status = Decode(transform, encode(31)).status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "decoding image of 31 x 20 pixels: more than pixels_max, which is 600; cut or resize "
              "the file");
  }
}

TEST(ImageCodecTest, HugeSidesInAHeaderAreRefusedBeforeMemoryIsTaken) {
  Encoded jpeg = EncodeJpeg(MakeTexture(16, 16));
  for (std::size_t i = 0; i + 8 < jpeg.size(); ++i) {  // the frame header: FF C0, length, 8 bits
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == std::byte{0xC0}) {
      std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(i) + 5, 4, std::byte{0xFE});
      break;
    }
  }
  EXPECT_EQ(Decode(Plain(8, 8), jpeg).status.code(), StatusCode::kInvalidArgument);
}

TEST(ImageCodecTest, APngBeyondWhatItsReaderCanCountIsToldWithItsSize) {
  // The head of a PNG: its magic bytes, and the chunk IHDR with its checksum.
  const auto head = [](std::uint32_t width, std::uint32_t height) {
    std::vector<std::uint8_t> bytes = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13};
    std::vector<std::uint8_t> chunk = {'I', 'H', 'D', 'R'};
    const auto put = [](std::vector<std::uint8_t>& to, std::uint32_t number) {
      for (int shift = 24; shift >= 0; shift -= 8) {
        to.push_back(static_cast<std::uint8_t>(number >> shift));
      }
    };
    put(chunk, width);
    put(chunk, height);
    chunk.insert(chunk.end(), {8, 2, 0, 0, 0});
    std::uint32_t crc = ~std::uint32_t{0};
    for (const std::uint8_t byte : chunk) {
      crc ^= byte;
      for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
    }
    put(chunk, ~crc);
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
    Encoded encoded(bytes.size());
    std::memcpy(encoded.data(), bytes.data(), bytes.size());
    return encoded;
  };
  constexpr std::uint32_t kMost = 0x7FFFFFFF;
  for (const auto& [width, height] : {std::pair{kMost, kMost}, {kMost, 1U}, {1U, kMost}}) {
    const std::string size = std::to_string(width) + " x " + std::to_string(height) + " pixels: ";
    ImageTransform transform = Plain(8, 8);
    const Status status = Decode(transform, head(width, height)).status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "decoding image of " + size + "more than pixels_max, which is " +
                                    std::to_string(transform.pixels_max) +
                                    "; cut or resize the file");
  }
  ImageTransform transform = Plain(8, 8);
  transform.pixels_max = std::uint64_t{1} << 62;
  const Status status = Decode(transform, head(kMost, 1)).status;
  EXPECT_EQ(status.message(),
            "decoding image of 2147483647 x 1 pixels: a side longer than 65500 pixels is not "
            "decoded; cut or resize the file");
}

TEST(ImageCodecTest, ASideOfZeroIsDataLoss) {
  Encoded jpeg = EncodeJpeg(MakeTexture(16, 16));
  Encoded png = EncodePng(MakeTexture(16, 16));
  for (std::size_t i = 0; i + 8 < jpeg.size(); ++i) {
    if (jpeg[i] == std::byte{0xFF} && jpeg[i + 1] == std::byte{0xC0}) {
      std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(i) + 5, 2, std::byte{0});
      break;
    }
  }
  std::fill_n(png.begin() + 16, 4, std::byte{0});
  EXPECT_EQ(Decode(Plain(8, 8), jpeg).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Decode(Plain(8, 8), png).status.code(), StatusCode::kDataLoss);
}

TEST(ImageCodecTest, ATruncatedImageIsDataLossWhereverItEndsAndWhateverTheCrop) {
  ImageTransform crop = Plain(16, 16);
  crop.random_resized_crop.emplace();
  const RgbImage image = MakeTexture(160, 160);
  const std::vector<Encoded> images = {
      EncodeJpeg(image),
      EncodeJpeg(image, {.horizontal_sampling = 1, .vertical_sampling = 2}),
      EncodeJpeg(image, {.progressive = true}),
      EncodeJpeg(image, {.components = 1}),
      EncodeJpeg(image, {.components = 4}),
      EncodeJpeg(image, {.restart_rows = 1}),
      EncodePng(image),
      EncodePng(image, {.interlaced = true}),
      EncodeWebp(image),
      EncodeWebp(image, {.lossless = true}),
      EncodeTiff(image),
      EncodeTiff(image, {.compression = 5, .tile_width = 32, .tile_height = 32}),
  };
  for (std::size_t n = 0; n < images.size(); ++n) {
    ASSERT_TRUE(Decode(crop, images[n]).status.ok()) << n;
    for (std::size_t sixteenth = 0; sixteenth < 16; ++sixteenth) {
      Encoded cut = images[n];
      cut.resize(cut.size() * sixteenth / 16);
      for (std::uint64_t i = 0; i < 8; ++i) {
        const Status status = Decode(crop, cut, {.seed = i}).status;
        ASSERT_EQ(status.code(), StatusCode::kDataLoss) << n << " cut to " << sixteenth << "/16";
      }
      EXPECT_EQ(Decode(Plain(160, 160), cut).status.code(), StatusCode::kDataLoss);
    }
  }
}

// What looks right may be wrong: the checksums of a PNG's pixels come behind the last row.
TEST(ImageCodecTest, AWrongByteOfAPngIsDataLossWhateverTheCrop) {
  ImageTransform crop = Plain(16, 16);
  crop.random_resized_crop.emplace();
  const Encoded whole = EncodePng(MakeTexture(160, 160));
  constexpr std::size_t kPixelsBegin = 60;  // behind the header
  constexpr std::size_t kPixelsEnd = 16;    // before the end chunk and the last checksum
  for (std::size_t part = 0; part < 24; ++part) {
    Encoded wrong = whole;
    wrong[kPixelsBegin + (whole.size() - kPixelsBegin - kPixelsEnd) * part / 24] ^= std::byte{0x10};
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(Decode(crop, wrong, {.seed = i}).status.code(), StatusCode::kDataLoss) << part;
    }
  }
}

TEST(ImageCodecTest, FlippedBytesNeverDoMoreThanAnError) {
  Prng prng(20261121, 0, RandomStream::kAugment, 0);
  ImageTransform crop = Plain(16, 16);
  crop.random_resized_crop.emplace();
  crop.pixels_max = 1 << 16;
  const auto codec = Make(crop);
  const RgbImage image = MakeTexture(70, 50);
  const std::vector<Encoded> images = {
      EncodeJpeg(image),
      EncodeJpeg(image, {.progressive = true}),
      EncodeJpeg(image, {.components = 4}),
      EncodePng(image),
      EncodePng(image, {.color_type = 3, .bit_depth = 4, .interlaced = true}),
      EncodeWebp(image),
      EncodeWebp(image, {.lossless = true, .alpha = true}),
      EncodeTiff(image, {.mode = "wb"}),
      EncodeTiff(image, {.samples = 4, .compression = 5, .tile_width = 32, .tile_height = 32}),
      EncodeTiff(image, {.compression = 8, .differences = true, .planes = true}),
      EncodeTiff(image, {.photometric = 0, .samples = 1, .bits = 1, .compression = 4})};
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    Encoded damaged = images[prng.Below(images.size())];
    for (std::uint64_t flips = 1 + prng.Below(6); flips > 0; --flips) {
      damaged[prng.Below(damaged.size())] ^= static_cast<std::byte>(1U << prng.Below(8));
    }
    const SampleKey key{.seed = static_cast<std::uint64_t>(i)};
    const Decoded first = Decode(*codec, damaged, key);
    const Decoded again = Decode(*codec, damaged, key);
    ASSERT_EQ(first.status.ToString(), again.status.ToString());
    if (first.status.ok()) {
      ASSERT_EQ(first.bytes, again.bytes);
      continue;
    }
    ++refused;
    ASSERT_THAT(first.status.code(),
                testing::AnyOf(StatusCode::kDataLoss, StatusCode::kInvalidArgument));
  }
  EXPECT_GT(refused, 300);
}

TEST(ImageCodecTest, ATransformThatCannotBeIsRefusedByName) {
  using Edit = std::function<void(ImageTransform&)>;
  const auto crop = [](ImageTransform& t) -> RandomResizedCrop& {
    return t.random_resized_crop.emplace();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, Edit>> wrong = {
      {"height x width: got 0 x 224", [](ImageTransform& t) { t.height = 0; }},
      {"height x width: got 224 x 65537", [](ImageTransform& t) { t.width = 65537; }},
      {"scale",
       [&](ImageTransform& t) {
         crop(t).scale = {0.5, 0.4};
       }},
      {"scale",
       [&](ImageTransform& t) {
         crop(t).scale = {0, 0.4};
       }},
      {"scale",
       [&](ImageTransform& t) {
         crop(t).scale = {0.1, 1.5};
       }},
      {"scale",
       [&](ImageTransform& t) {
         crop(t).scale = {nan, 1};
       }},
      {"ratio",
       [&](ImageTransform& t) {
         crop(t).ratio = {-1, 1};
       }},
      {"ratio",
       [&](ImageTransform& t) {
         crop(t).ratio = {2, 1};
       }},
      {"resize_shorter: got 256 beside",
       [&](ImageTransform& t) { crop(t), t.resize_shorter = 256; }},
      {"resize_shorter: got 223, must be 0 or in [224, 65536]",
       [](ImageTransform& t) { t.resize_shorter = 223; }},
      {"flip_probability", [](ImageTransform& t) { t.flip_probability = 1.01; }},
      {"flip_probability", [&](ImageTransform& t) { t.flip_probability = nan; }},
      {"std: got 0.000000 for channel 1", [](ImageTransform& t) { t.std[1] = 0; }},
      {"mean", [](ImageTransform& t) { t.mean[2] = std::numeric_limits<float>::infinity(); }},
      {"pixels_max: got 0", [](ImageTransform& t) { t.pixels_max = 0; }},
  };
  for (const auto& [part, edit] : wrong) {
    ImageTransform transform;
    edit(transform);
    const Status status = StatusOf(transform);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("image transform " + part));
  }
}

}  // namespace
}  // namespace headrace
