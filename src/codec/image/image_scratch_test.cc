// Scratch memory of a decode: bounded by its header, limited, and freed.

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "base/units.h"
#include "codec/image/image_codec.h"
#include "codec/image/test_images.h"
#include "codec/scratch_memory.h"

namespace headrace {
namespace {

using test::EncodeJpeg;
using test::EncodePng;
using test::EncodeTiff;
using test::EncodeWebp;
using test::MakeTexture;
using test::RgbImage;

using Encoded = std::vector<std::byte>;

struct DecodedInScratch {
  Status status;
  ScratchLimit limit;
  std::size_t taken = 0;  // peak, beside the memory that the thread had retained
  std::size_t retained = 0;
  Encoded row;
};

DecodedInScratch DecodeInScratch(const ImageTransform& transform, const Encoded& encoded,
                                 const ScratchLimit& limit, std::uint64_t seed = 0) {
  const auto codec = MakeImageCodec(transform).value();
  std::vector<std::byte> row(codec->RowBytes(encoded.size()));
  ScratchUse& use = ThreadScratchUse();
  use.bytes_peak = use.bytes;
  const std::size_t before = use.bytes;
  DecodedInScratch decoded{.limit = limit};
  decoded.status = codec->DecodeWithin(encoded, {.seed = seed}, row, decoded.limit);
  decoded.taken = use.bytes_peak - before;
  decoded.retained = use.bytes;
  decoded.row = std::move(row);
  return decoded;
}

// Threads keep nothing between decodes, so that each decode allocates all that it needs.
constexpr ScratchLimit kForgetful{.retained_bytes_max = 0};

std::vector<Encoded> KindsOf(const RgbImage& image) {
  std::vector<Encoded> kinds;
  for (const bool progressive : {false, true}) {
    for (const int components : {1, 3, 4}) {
      kinds.push_back(EncodeJpeg(image, {.components = components, .progressive = progressive}));
    }
    kinds.push_back(EncodeJpeg(
        image, {.horizontal_sampling = 1, .vertical_sampling = 1, .progressive = progressive}));
    kinds.push_back(EncodeJpeg(
        image, {.horizontal_sampling = 1, .vertical_sampling = 2, .progressive = progressive}));
  }
  for (const bool interlaced : {false, true}) {
    kinds.push_back(EncodePng(image, {.interlaced = interlaced}));
    kinds.push_back(EncodePng(image, {.color_type = 6, .bit_depth = 16, .interlaced = interlaced}));
    kinds.push_back(EncodePng(image, {.color_type = 0, .bit_depth = 1, .interlaced = interlaced}));
    kinds.push_back(EncodePng(image, {.color_type = 3, .bit_depth = 4, .interlaced = interlaced}));
  }
  return kinds;
}

TEST(ImageScratchTest, NoDecodeTakesMoreThanItsHeaderTellsNorFarLess) {
  Prng prng(7, 0, RandomStream::kAugment, 0);
  int large = 0;
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes = {
      {900, 700}, {30000, 9}, {9, 20000}, {640, 481}, {33, 17}, {1, 700}, {1, 1}, {1023, 3}};
  for (const auto& [width, height] : sizes) {
    ImageTransform transform;
    transform.height = 1 + static_cast<std::uint32_t>(prng.Below(300));
    transform.width = 1 + static_cast<std::uint32_t>(prng.Below(300));
    transform.exact = prng.Below(2) == 0;
    if (prng.Below(2) == 0) transform.random_resized_crop.emplace();
    for (const Encoded& encoded : KindsOf(MakeTexture(width, height))) {
      const DecodedInScratch decoded = DecodeInScratch(transform, encoded, kForgetful, width);
      ASSERT_TRUE(decoded.status.ok()) << decoded.status.ToString();
      ASSERT_LE(decoded.taken, decoded.limit.bytes_needed) << width << " x " << height;
      ASSERT_EQ(decoded.retained, 0U);
      if (decoded.taken < kMiB) continue;
      ++large;
      ASSERT_LE(decoded.limit.bytes_needed, 2 * decoded.taken) << width << " x " << height;
    }
  }
  EXPECT_GE(large, 15);
}

// libwebp and libtiff take memory of their own, which is not measured here.
TEST(ImageScratchTest, AWebpOrTiffTakesNoMoreThanItsHeaderTells) {
  Prng prng(8, 0, RandomStream::kAugment, 0);
#ifdef NDEBUG
  constexpr std::uint32_t kLong = 6000;
#else
  constexpr std::uint32_t kLong = 1500;  // Slow builds look for other mistakes.
#endif
  for (const auto& [width, height] :
       {std::pair{kLong / 10, kLong / 12}, {9U, kLong}, {kLong, 9U}, {1U, 1U}}) {
    const RgbImage image = MakeTexture(width, height);
    for (const Encoded& encoded :
         {EncodeWebp(image, {.quality = 20}), EncodeTiff(image),
          EncodeTiff(image, {.bits = 16, .planes = true, .rows_per_strip = height}),
          EncodeTiff(image, {.samples = 4, .tile_width = 64, .tile_height = 256}),
          EncodeTiff(image, {.planes = true, .tile_width = 16384, .tile_height = 16})}) {
      for (const bool crop : {false, true}) {
        ImageTransform transform;
        transform.height = 1 + static_cast<std::uint32_t>(prng.Below(300));
        if (crop) transform.random_resized_crop.emplace();
        const DecodedInScratch decoded = DecodeInScratch(transform, encoded, kForgetful, width);
        ASSERT_TRUE(decoded.status.ok()) << decoded.status.ToString();
        ASSERT_LE(decoded.taken, decoded.limit.bytes_needed) << width << " x " << height;
        ASSERT_EQ(decoded.retained, 0U);
        if (crop) continue;
        ASSERT_LE(decoded.limit.bytes_needed, 2 * decoded.taken + 3 * kMiB) << width;
      }
    }
  }
}

TEST(ImageScratchTest, TooLargeADecodeSaysHowMuchItTakesAndTakesNothing) {
  const RgbImage image = MakeTexture(700, 500);
  for (const Encoded& encoded :
       {EncodeJpeg(image, {.progressive = true}), EncodePng(image, {.interlaced = true}),
        EncodeWebp(image), EncodeTiff(image, {.compression = 5, .rows_per_strip = 500})}) {
    ImageTransform transform;
    ScratchLimit limit{.bytes_max = 512 * kKiB};
    const DecodedInScratch refused = DecodeInScratch(transform, encoded, limit);
    EXPECT_EQ(refused.status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.status.message(), "decoding image of 700 x 500 pixels takes " +
                                            FormatBytes(refused.limit.bytes_needed) + " of memory");
    EXPECT_LT(refused.taken, 128 * kKiB);  // To read the header.
    limit.bytes_max = refused.limit.bytes_needed;
    const DecodedInScratch decoded = DecodeInScratch(transform, encoded, limit);
    EXPECT_TRUE(decoded.status.ok());
    EXPECT_EQ(decoded.limit.bytes_needed, refused.limit.bytes_needed);
    EXPECT_GT(decoded.taken, kMiB);
    limit.bytes_max = refused.limit.bytes_needed - 1;
    EXPECT_EQ(DecodeInScratch(transform, encoded, limit).status.code(),
              StatusCode::kResourceExhausted);
  }
}

TEST(ImageScratchTest, AThreadKeepsNoMoreThanItMay) {
  const Encoded small = EncodeJpeg(MakeTexture(400, 300));
  const Encoded wide = EncodePng(MakeTexture(40000, 8));
  ImageTransform transform;
  transform.exact = true;
  const ScratchLimit limit{.retained_bytes_max = 256 * kKiB};
  EXPECT_GT(DecodeInScratch(transform, small, limit).retained, 0U);
  const DecodedInScratch decoded = DecodeInScratch(transform, wide, limit);
  EXPECT_GT(decoded.taken, kMiB);
  EXPECT_LE(decoded.retained, limit.retained_bytes_max);
  EXPECT_LE(DecodeInScratch(transform, small, limit).retained, limit.retained_bytes_max);
  // No decode adds its memory to that of an earlier one of another kind.
  const DecodedInScratch again = DecodeInScratch(transform, wide, limit);
  EXPECT_LE(again.taken, again.limit.bytes_needed);
}

TEST(ImageScratchTest, ProfilesAndTextsOfAPngTakeNoMemory) {
  const RgbImage image = MakeTexture(300, 200);
  for (const bool interlaced : {false, true}) {
    const Encoded plain = EncodePng(image, {.interlaced = interlaced});
    const Encoded more =
        EncodePng(image, {.interlaced = interlaced, .profile_bytes = 3000, .text_bytes = 8 * kMiB});
    ASSERT_GT(more.size(), plain.size() + 3000 + 8 * kMiB / 1032);
    const DecodedInScratch without = DecodeInScratch(ImageTransform(), plain, kForgetful);
    const DecodedInScratch with = DecodeInScratch(ImageTransform(), more, kForgetful);
    EXPECT_EQ(with.status.ToString(), "OK");
    EXPECT_EQ(with.limit.bytes_needed, without.limit.bytes_needed);
    EXPECT_EQ(with.taken, without.taken);
    EXPECT_EQ(with.row, without.row);
  }
}

TEST(ImageScratchTest, TextsOfAPngThatIsCutOffTakeNoMemory) {
  const RgbImage image = MakeTexture(300, 200);
  std::vector<Encoded> cut_off;
  const Encoded packed = EncodePng(image, {.text_bytes = 8 * kMiB});
  constexpr std::array kPackedText = {std::byte{'z'}, std::byte{'T'}, std::byte{'X'},
                                      std::byte{'t'}};
  const auto text =
      std::search(packed.begin(), packed.end(), kPackedText.begin(), kPackedText.end());
  constexpr std::ptrdiff_t kOfText = 6144;
  ASSERT_GT(packed.end() - text, kOfText);
  cut_off.emplace_back(packed.begin(), text + kOfText);
  // A text that claims 2^31 - 1 bytes, after the header; complete, and truncated.
  const Encoded plain = EncodePng(image);
  Encoded long_text(plain.begin(), plain.begin() + 33);
  for (const char byte : {'\x7f', '\xff', '\xff', '\xff', 't', 'E', 'X', 't'}) {
    long_text.push_back(static_cast<std::byte>(byte));
  }
  cut_off.push_back(long_text);
  long_text.insert(long_text.end(), {std::byte{'k'}, std::byte{0}});
  long_text.insert(long_text.end(), 1000, std::byte{'a'});
  cut_off.push_back(long_text);
  for (const Encoded& encoded : cut_off) {
    const DecodedInScratch decoded = DecodeInScratch(ImageTransform(), encoded, kForgetful);
    EXPECT_EQ(decoded.status.code(), StatusCode::kDataLoss) << decoded.status.ToString();
    EXPECT_LE(decoded.taken, decoded.limit.bytes_needed);
  }
}

TEST(ImageScratchTest, NoSideMayBeLongerThanAJpegs) {
  // A row of 8 million pixels needed a filter of 64 MB; one of the allowed 178 million, 1.4 GiB.
  const DecodedInScratch wide =
      DecodeInScratch(ImageTransform(), EncodePng(MakeTexture(65501, 1)), kForgetful);
  EXPECT_EQ(wide.status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(wide.status.message(),
            "decoding image of 65501 x 1 pixels: a side longer than 65500 pixels is not decoded; "
            "cut or resize the file");
  EXPECT_EQ(
      DecodeInScratch(ImageTransform(), EncodePng(MakeTexture(1, 65501)), kForgetful).status.code(),
      StatusCode::kInvalidArgument);
  const DecodedInScratch longest =
      DecodeInScratch(ImageTransform(), EncodePng(MakeTexture(65500, 1)), kForgetful);
  EXPECT_TRUE(longest.status.ok());
  EXPECT_LE(longest.taken, 8 * kMiB);  // twice the rows of one horizontal pass, and a filter
}

}  // namespace
}  // namespace headrace
