#include "codec/tiff_left_out.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string>

#include "codec/image/image_decoder.h"

namespace headrace {
namespace {

constexpr std::array kTiff = {std::byte{'I'}, std::byte{'I'}, std::byte{'*'}, std::byte{0}};

TEST(TiffLeftOutTest, ItIsRefusedWithTheRemedies) {
  const Status status = TiffIsLeftOut(kTiff);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "decoding TIFF image of 4 bytes: this build of headrace cannot decode TIFF: convert "
            "the files to PNG, decode them by Pillow in a Python transform, or build headrace from "
            "source, which uses the system's libtiff");
}

TEST(TiffLeftOutTest, ABuildWithoutTiffSaysSoAndOthersDecodeIt) {
  const auto opened = OpenImage(kTiff, 100);
  ASSERT_FALSE(opened.ok());
  const bool is_left_out = opened.status().message() == TiffIsLeftOut(kTiff).message();
  EXPECT_EQ(is_left_out, !DecodesTiff());
  EXPECT_TRUE(DecodesTiff() || IsRefusedImage(kTiff));  // Then Pillow decodes it.
}

}  // namespace
}  // namespace headrace
