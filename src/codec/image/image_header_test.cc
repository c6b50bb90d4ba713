#include "codec/image/image_header.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "codec/image/test_images.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using test::EncodeJpeg;
using test::EncodePng;
using test::EncodeTiff;
using test::EncodeWebp;
using test::MakeTexture;

using Bytes = std::vector<std::byte>;

// Width and height by looks at `look` bytes each; nothing: unknown.
std::optional<std::pair<std::uint32_t, std::uint32_t>> SizeOf(const Bytes& encoded,
                                                              std::uint64_t look) {
  std::uint64_t at = 0;
  for (int looks = 0; looks < 64 && at < encoded.size(); ++looks) {
    const auto rest = std::span(encoded).subspan(at);
    const HeaderLook found =
        LookAtHeader(rest.first(std::min<std::uint64_t>(rest.size(), look)), at);
    if (const auto* header = std::get_if<ImageHeader>(&found)) {
      return std::pair(header->size.width, header->size.height);
    }
    const auto* further = std::get_if<HeaderFurtherOn>(&found);
    if (further == nullptr) return std::nullopt;
    EXPECT_GT(further->at, at);
    at = further->at;
  }
  return std::nullopt;
}

// With segments of `bytes` bytes before the header, as EXIF and profiles are.
Bytes WithSegments(Bytes jpeg, const std::vector<std::size_t>& sizes) {
  for (const std::size_t size : sizes) {
    Bytes segment = {std::byte(0xFF), std::byte(0xE1), std::byte((size + 2) >> 8),
                     std::byte((size + 2) & 255)};
    segment.resize(4 + size, std::byte(0xFF));
    jpeg.insert(jpeg.begin() + 2, segment.begin(), segment.end());
  }
  return jpeg;
}

TEST(ImageHeaderTest, TheSizeOfEveryKindIsFound) {
  const auto image = MakeTexture(301, 67);
  const std::pair<std::uint32_t, std::uint32_t> size(301, 67);
  for (const Bytes& encoded :
       {EncodeJpeg(image), EncodeJpeg(image, {.progressive = true}),
        EncodeJpeg(image, {.components = 1}), EncodeJpeg(image, {.components = 4}),
        EncodePng(image), EncodePng(image, {.color_type = 0, .interlaced = true}),
        EncodePng(image, {.profile_bytes = 5000}), EncodeWebp(image),
        EncodeWebp(image, {.lossless = true}), EncodeWebp(image, {.alpha = true})}) {
    EXPECT_EQ(SizeOf(encoded, kHeaderLookBytes), size);
  }
}

TEST(ImageHeaderTest, AHeaderBehindLongSegmentsIsFoundByFurtherLooks) {
  const Bytes jpeg = WithSegments(EncodeJpeg(MakeTexture(33, 44)), {60000, 10, 3000, 1020});
  const std::pair<std::uint32_t, std::uint32_t> size(33, 44);
  EXPECT_EQ(SizeOf(jpeg, kHeaderLookBytes), size);
  EXPECT_EQ(SizeOf(jpeg, 100), size);
  EXPECT_EQ(SizeOf(jpeg, 9), size);
}

TEST(ImageHeaderTest, WhatSaysNoSizeIsUnknown) {
  const auto image = MakeTexture(20, 20);
  Bytes no_frame = EncodeJpeg(image);
  no_frame.resize(20);
  EXPECT_EQ(SizeOf(no_frame, kHeaderLookBytes), std::nullopt);
  EXPECT_EQ(SizeOf(EncodeTiff(image), kHeaderLookBytes), std::nullopt);
  EXPECT_EQ(SizeOf(Bytes(5000), kHeaderLookBytes), std::nullopt);
  EXPECT_EQ(SizeOf(Bytes(3, std::byte(0xFF)), kHeaderLookBytes), std::nullopt);
  for (Bytes cut : {EncodePng(image), EncodeWebp(image), EncodeJpeg(image)}) {
    for (std::size_t size = 0; size < 24; ++size) {
      EXPECT_EQ(SizeOf(Bytes(cut.begin(), cut.begin() + static_cast<std::ptrdiff_t>(size)),
                       kHeaderLookBytes),
                std::nullopt);
    }
  }
}

// Any bytes: nothing but an answer.
TEST(ImageHeaderTest, DamagedHeadersDoNotMislead) {
  for (const Bytes& encoded : {EncodeJpeg(MakeTexture(30, 30)), EncodePng(MakeTexture(30, 30)),
                               EncodeWebp(MakeTexture(30, 30))}) {
    for (std::size_t at = 0; at < std::min<std::size_t>(encoded.size(), 700); ++at) {
      for (const unsigned value : {0U, 1U, 0xFFU}) {
        Bytes changed = encoded;
        changed[at] = std::byte(value);
        static_cast<void>(SizeOf(changed, 64));
      }
    }
  }
}

}  // namespace
}  // namespace headrace
