#include "codec/image/jpeg_decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "codec/image/test_images.h"

namespace headrace {
namespace {

using test::DecodeJpegPlainly;
using test::EncodeJpeg;
using test::JpegOptions;
using test::MakeTexture;
using test::RgbImage;

constexpr std::uint64_t kJpegPixelsMax = 1 << 20;

RgbImage Crop(const RgbImage& image, const ImageRegion& region) {
  RgbImage crop{region.width, region.height, {}};
  for (std::uint32_t y = 0; y < region.height; ++y) {
    const auto begin =
        image.pixels.begin() +
        static_cast<std::ptrdiff_t>((std::size_t{region.y + y} * image.width + region.x) * 3);
    crop.pixels.insert(crop.pixels.end(), begin, begin + std::ptrdiff_t{3} * region.width);
  }
  return crop;
}

RgbImage DecodeRegion(std::span<const std::byte> encoded, const ImageRegion& region) {
  Result<std::unique_ptr<ImageDecoder>> opened = OpenJpeg(encoded, kJpegPixelsMax);
  EXPECT_TRUE(opened.ok()) << opened.status().ToString();
  ImageDecoder& decoder = *opened.value();
  const Status started = decoder.Start(region);
  EXPECT_TRUE(started.ok()) << started.ToString();
  std::vector<std::uint8_t> row(decoder.row_pixels() * kPixelBytes);
  RgbImage image{region.width, region.height, {}};
  for (std::uint32_t y = 0; y < region.height; ++y) {
    const Status read = decoder.ReadRow(row.data());
    EXPECT_TRUE(read.ok()) << read.ToString();
    const std::uint8_t* pixels = row.data() + decoder.row_lead() * kPixelBytes;
    image.pixels.insert(image.pixels.end(), pixels, pixels + region.width * kPixelBytes);
  }
  const Status finished = decoder.Finish(row.data());
  EXPECT_TRUE(finished.ok()) << finished.ToString();
  return image;
}

using JpegKind = std::tuple<int, int, int, bool>;  // sampling, components, progressive

class JpegRegionTest : public testing::TestWithParam<JpegKind> {};

TEST_P(JpegRegionTest, EveryRegionEqualsTheSamePartOfAFullDecode) {
  const auto [horizontal, vertical, components, progressive] = GetParam();
  Prng prng(2026, 0, RandomStream::kAugment, 0);
  for (const auto& [width, height] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {1, 1}, {9, 50}, {33, 17}, {131, 97}, {257, 300}}) {
    const std::vector<std::byte> encoded =
        EncodeJpeg(MakeTexture(width, height), {.horizontal_sampling = horizontal,
                                                .vertical_sampling = vertical,
                                                .components = components,
                                                .progressive = progressive,
                                                .restart_rows = width == 131 ? 2 : 0});
    for (unsigned halvings = 0; halvings <= 3; ++halvings) {
      const RgbImage full = DecodeJpegPlainly(encoded, halvings);
      ASSERT_EQ(full.width, Halved(width, halvings));
      ASSERT_EQ(full.height, Halved(height, halvings));
      for (int i = 0; i < 40; ++i) {
        ImageRegion region{.halvings = halvings};
        region.x = static_cast<std::uint32_t>(prng.Below(full.width));
        region.y = static_cast<std::uint32_t>(prng.Below(full.height));
        region.width = 1 + static_cast<std::uint32_t>(prng.Below(full.width - region.x));
        region.height = 1 + static_cast<std::uint32_t>(prng.Below(full.height - region.y));
        ASSERT_EQ(DecodeRegion(encoded, region), Crop(full, region))
            << width << " x " << height << " / " << (1 << halvings) << ": " << region.width << " x "
            << region.height << " at " << region.x << ", " << region.y;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, JpegRegionTest,
                         testing::Values(JpegKind{1, 1, 3, false}, JpegKind{2, 1, 3, false},
                                         JpegKind{2, 2, 3, false}, JpegKind{1, 2, 3, false},
                                         JpegKind{4, 1, 3, false}, JpegKind{4, 2, 3, false},
                                         JpegKind{2, 4, 3, false}, JpegKind{1, 1, 1, false},
                                         JpegKind{2, 2, 3, true}, JpegKind{1, 1, 1, true}));

TEST(JpegDecoderTest, ScalingTellsHowMuchCoarserColoursStayThanAScaledImage) {
  struct Sampling {
    int horizontal;
    int vertical;
    int components;
    unsigned chroma_halvings;
  };
  for (const Sampling& each :
       {Sampling{1, 1, 3, 0}, Sampling{2, 2, 3, 0}, Sampling{2, 1, 3, 1}, Sampling{1, 2, 3, 1},
        Sampling{4, 1, 3, 2}, Sampling{4, 2, 3, 1}, Sampling{2, 4, 3, 1}, Sampling{1, 1, 1, 0}}) {
    const std::vector<std::byte> encoded =
        EncodeJpeg(MakeTexture(64, 48), {.horizontal_sampling = each.horizontal,
                                         .vertical_sampling = each.vertical,
                                         .components = each.components});
    Result<std::unique_ptr<ImageDecoder>> opened = OpenJpeg(encoded, kJpegPixelsMax);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const DecoderScaling scaling = opened.value()->scaling();
    EXPECT_EQ(scaling.halvings_max, 3U);
    EXPECT_EQ(scaling.chroma_halvings, each.chroma_halvings)
        << each.horizontal << " x " << each.vertical << ", " << each.components;
  }
}

TEST(JpegDecoderTest, AMissingEndMarkerAloneIsNoError) {
  std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(64, 48));
  const RgbImage full = DecodeJpegPlainly(encoded);
  encoded.resize(encoded.size() - 2);
  EXPECT_EQ(DecodeRegion(encoded, {.width = 64, .height = 48}), full);
}

TEST(JpegDecoderTest, ATruncatedImageIsAnErrorThoughTheRegionIsComplete) {
  std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(64, 200));
  encoded.resize(encoded.size() * 9 / 10);
  Result<std::unique_ptr<ImageDecoder>> opened = OpenJpeg(encoded, kJpegPixelsMax);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  ImageDecoder& decoder = *opened.value();
  ASSERT_TRUE(decoder.Start({.width = 10, .height = 1}).ok());
  std::vector<std::uint8_t> row(decoder.row_pixels() * std::size_t{3});
  ASSERT_TRUE(decoder.ReadRow(row.data()).ok());
  const Status status = decoder.Finish(row.data());
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "decoding JPEG image of 64 x 200 pixels: Corrupt JPEG data: premature end of data "
            "segment");
}

TEST(JpegDecoderTest, ASeveralScanImageWithoutEndMarkerIsAnError) {
  std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(64, 48), {.progressive = true});
  encoded.resize(encoded.size() - 2);
  EXPECT_EQ(OpenJpeg(encoded, kJpegPixelsMax).status().code(), StatusCode::kDataLoss);
}

// One of three is cut out of the frame's header, and of the scan's.
TEST(JpegDecoderTest, AnImageOfTwoComponentsIsRefusedWithTheirNumber) {
  std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(64, 48));
  const auto cut = [&](std::uint8_t marker, std::ptrdiff_t count_at, std::ptrdiff_t bytes) {
    const std::array<std::byte, 2> wanted = {std::byte{0xFF}, std::byte{marker}};
    const auto found = std::search(encoded.begin(), encoded.end(), wanted.begin(), wanted.end());
    ASSERT_NE(found, encoded.end());
    found[3] = static_cast<std::byte>(std::to_integer<int>(found[3]) - bytes);
    found[count_at] = std::byte{2};
    encoded.erase(found + count_at + 1 + 2 * bytes, found + count_at + 1 + 3 * bytes);
  };
  cut(0xC0, 9, 3);
  cut(0xDA, 4, 2);
  EXPECT_EQ(OpenJpeg(encoded, kJpegPixelsMax).status().message(),
            "decoding JPEG image of 64 x 48 pixels: 2 components, only 1, 3 and 4 are decoded");
}

TEST(JpegDecoderTest, ExtraBytesBeforeAMarkerAreHarmless) {
  std::vector<std::byte> encoded = EncodeJpeg(MakeTexture(64, 48));
  const RgbImage full = DecodeJpegPlainly(encoded);
  encoded.insert(encoded.end() - 2, 3, std::byte{0x11});
  EXPECT_EQ(DecodeRegion(encoded, {.width = 64, .height = 48}), full);
}

}  // namespace
}  // namespace headrace
