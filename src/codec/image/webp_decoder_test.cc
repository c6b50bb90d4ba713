#include "codec/image/webp_decoder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"
#include "codec/image/whole_image.h"

namespace headrace {
namespace {

using test::DecodeWebpPlainly;
using test::EncodePng;
using test::EncodeWebp;
using test::EncodeWebpAnimation;
using test::MakeTexture;
using test::RgbImage;
using testing::HasSubstr;

using Encoded = std::vector<std::byte>;
constexpr std::uint64_t kWebpPixelsMax = 1 << 20;

struct DecodedWebp {
  Status status;
  RgbImage image;
};

DecodedWebp DecodeWebp(const Encoded& encoded, std::uint64_t pixels_max = kWebpPixelsMax) {
  DecodedWebp decoded;
  ScratchLimit limit;
  const auto room = [&](std::uint32_t height, std::uint32_t width) {
    decoded.image = {width, height, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
    return reinterpret_cast<std::byte*>(decoded.image.pixels.data());
  };
  decoded.status = DecodeWholeImage(encoded, pixels_max, limit, room);
  return decoded;
}

std::vector<Encoded> WebpKindsOf(const RgbImage& image) {
  return {EncodeWebp(image), EncodeWebp(image, {.alpha = true}),
          EncodeWebp(image, {.lossless = true}),
          EncodeWebp(image, {.lossless = true, .alpha = true}), EncodeWebp(image, {.quality = 5})};
}

TEST(WebpDecoderTest, EveryKindIsWhatLibwebpDecodes) {
  for (const auto& [width, height] : {std::pair{53U, 37U}, {1U, 1U}, {2U, 33U}, {64U, 16U}}) {
    for (const Encoded& encoded : WebpKindsOf(MakeTexture(width, height))) {
      const DecodedWebp decoded = DecodeWebp(encoded);
      ASSERT_EQ(decoded.status.ToString(), "OK");
      ASSERT_EQ(decoded.image, DecodeWebpPlainly(encoded)) << width << " x " << height;
    }
  }
}

TEST(WebpDecoderTest, ALosslessImageIsItsPixelsWhateverItsAlpha) {
  const RgbImage image = MakeTexture(61, 45);
  for (const bool alpha : {false, true}) {
    const Encoded encoded = EncodeWebp(image, {.lossless = true, .alpha = alpha});
    EXPECT_EQ(DecodeWebp(encoded).image, image);
  }
}

TEST(WebpDecoderTest, ACropEqualsTheSameCropOfAFullDecode) {
  ImageTransform transform;
  transform.random_resized_crop.emplace();
  transform.height = 9;
  transform.width = 11;
  const auto codec = MakeImageCodec(transform).value();
  const RgbImage image = MakeTexture(75, 63);
  for (const Encoded& encoded : WebpKindsOf(image)) {
    const Encoded pixels = EncodePng(DecodeWebpPlainly(encoded));
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

TEST(WebpDecoderTest, AnAnimationIsRefusedByName) {
  const Encoded encoded = EncodeWebpAnimation(MakeTexture(20, 10));
  const Status status = DecodeWebp(encoded).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("WebP image: an animation"));
  EXPECT_TRUE(IsRefusedWebp(encoded));
  EXPECT_TRUE(IsImageOfOtherKind(encoded));
  EXPECT_FALSE(IsImageOfOtherKind(EncodeWebp(MakeTexture(20, 10))));
}

TEST(WebpDecoderTest, EveryTruncationIsDataLoss) {
  for (const Encoded& whole : WebpKindsOf(MakeTexture(40, 30))) {
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 1 + bytes / 16) {
      const Encoded cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      ASSERT_EQ(DecodeWebp(cut).status.code(), StatusCode::kDataLoss) << bytes;
    }
  }
}

TEST(WebpDecoderTest, BytesBehindTheFileAreIgnored) {
  const RgbImage image = MakeTexture(20, 10);
  Encoded encoded = EncodeWebp(image, {.lossless = true});
  encoded.resize(encoded.size() + 7);
  EXPECT_EQ(DecodeWebp(encoded).image, image);
}

TEST(WebpDecoderTest, TheSizeIsCheckedBeforeAnythingIsDecoded) {
  const Encoded encoded = EncodeWebp(MakeTexture(31, 20));
  EXPECT_EQ(DecodeWebp(encoded, 620).status.ToString(), "OK");
  const Status status = DecodeWebp(encoded, 619).status;
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("31 x 20 pixels: more than pixels_max"));
}

TEST(WebpDecoderTest, ACanvasOfAnotherSizeIsDataLoss) {
  Encoded encoded = EncodeWebp(MakeTexture(20, 10), {.alpha = true});
  constexpr std::size_t kCanvasWidth = 24;
  ASSERT_EQ(encoded[kCanvasWidth], std::byte{19});
  encoded[kCanvasWidth] = std::byte{20};
  EXPECT_EQ(DecodeWebp(encoded).status.ToString(),
            "DataLoss: decoding WebP image of 20 x 10 pixels: damaged");
}

}  // namespace
}  // namespace headrace
