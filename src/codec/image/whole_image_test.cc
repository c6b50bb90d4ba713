#include "codec/image/whole_image.h"

#include <string>
#include <vector>

#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"
#include "codec/scratch_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using test::DecodeJpegPlainly;
using test::EncodeJpeg;
using test::EncodePng;
using test::MakeTexture;
using test::RgbImage;
using testing::HasSubstr;

using Encoded = std::vector<std::byte>;
constexpr std::uint64_t kWholePixelsMax = 1 << 20;

Encoded BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

RgbImage DecodedPixels(const Encoded& encoded) {
  RgbImage image;
  const auto room = [&](std::uint32_t height, std::uint32_t width) {
    image = {.width = width, .height = height, .pixels = {}};
    image.pixels.resize(std::size_t{3} * height * width);
    return reinterpret_cast<std::byte*>(image.pixels.data());
  };
  ScratchLimit limit;
  EXPECT_EQ(DecodeWholeImage(encoded, kWholePixelsMax, limit, room).ToString(), "OK");
  return image;
}

Status Checked(EncodedImages images, const Encoded& encoded, Encoded* row = nullptr) {
  const auto codec = MakeCheckedImageCodec(images);
  Encoded out(codec->RowBytes(encoded.size()));
  Status status = codec->Decode(encoded, {}, out);
  if (row != nullptr) *row = out;
  return status;
}

TEST(WholeImageTest, EveryPixelIsThatOfAFullDecode) {
  const RgbImage texture = MakeTexture(53, 37);
  EXPECT_EQ(DecodedPixels(EncodePng(texture)), texture);
  for (const bool progressive : {false, true}) {
    const Encoded jpeg = EncodeJpeg(texture, {.progressive = progressive});
    EXPECT_EQ(DecodedPixels(jpeg), DecodeJpegPlainly(jpeg));
  }
}

TEST(WholeImageTest, WithoutRoomItIsDecodedAndNotKept) {
  Encoded jpeg = EncodeJpeg(MakeTexture(64, 48));
  const auto no_room = [](auto, auto) { return nullptr; };
  ScratchLimit limit;
  EXPECT_EQ(DecodeWholeImage(jpeg, kWholePixelsMax, limit, no_room).ToString(), "OK");
  jpeg.resize(jpeg.size() / 2);
  EXPECT_EQ(DecodeWholeImage(jpeg, kWholePixelsMax, limit, no_room).code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeWholeImage({}, kWholePixelsMax, limit, no_room).code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeWholeImage(EncodePng(MakeTexture(64, 48)), 100, limit, no_room).code(),
            StatusCode::kInvalidArgument);
}

TEST(WholeImageTest, ACheckThatTakesMoreThanItMayIsRefusedBeforeItBegins) {
  const Encoded jpeg = EncodeJpeg(MakeTexture(640, 480), {.progressive = true});
  const auto codec = MakeCheckedImageCodec(EncodedImages::kDecodable);
  Encoded row(jpeg.size());
  ScratchLimit limit;
  EXPECT_EQ(codec->DecodeWithin(jpeg, {}, row, limit).ToString(), "OK");
  EXPECT_EQ(row, jpeg);
  const std::uint64_t needed = limit.bytes_needed;
  EXPECT_GT(needed, 640U * 480 * 2);  // coefficients
  EXPECT_LE(needed, codec->ScratchBytesMax());
  limit = {.bytes_max = needed - 1};
  const std::size_t taken_before = ThreadScratchUse().bytes_peak = ThreadScratchUse().bytes;
  EXPECT_EQ(codec->DecodeWithin(jpeg, {}, row, limit).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(limit.bytes_needed, needed);
  EXPECT_LT(ThreadScratchUse().bytes_peak - taken_before, std::size_t{64} << 10);  // The header's.
  limit = {.bytes_max = needed};
  EXPECT_EQ(codec->DecodeWithin(jpeg, {}, row, limit).ToString(), "OK");
  EXPECT_LE(ThreadScratchUse().bytes_peak - taken_before, needed);
}

TEST(WholeImageTest, CheckedBytesAreThoseStored) {
  const Encoded png = EncodePng(MakeTexture(20, 30));
  Encoded row;
  EXPECT_TRUE(Checked(EncodedImages::kDecodable, png, &row).ok());
  EXPECT_EQ(row, png);
  EXPECT_FALSE(MakeCheckedImageCodec(EncodedImages::kDecodable)->is_copy());
}

TEST(WholeImageTest, WhatIsDamagedOrNoImageIsRefused) {
  Encoded png = EncodePng(MakeTexture(20, 30));
  png.resize(png.size() - 20);
  for (const EncodedImages images :
       {EncodedImages::kDecodable, EncodedImages::kDecodableOrOtherKind}) {
    for (const Encoded& bad : {png, BytesOf("no image"), Encoded(), BytesOf("RIFF1234WAVE")}) {
      EXPECT_EQ(Checked(images, bad).code(), StatusCode::kDataLoss);
    }
  }
}

TEST(WholeImageTest, ImagesOfOtherKindsPassWhereTheyMay) {
  using std::string_view_literals::operator""sv;
  for (const auto begin : {"BM1"sv, "P5\n1"sv}) {
    EXPECT_TRUE(Checked(EncodedImages::kDecodableOrOtherKind, BytesOf(begin)).ok()) << begin;
    const Status status = Checked(EncodedImages::kDecodable, BytesOf(begin));
    EXPECT_THAT(std::string(status.message()), HasSubstr("neither JPEG, PNG, WebP nor TIFF"));
  }
}

}  // namespace
}  // namespace headrace
