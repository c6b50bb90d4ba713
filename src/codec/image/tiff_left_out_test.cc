#include "codec/image/tiff_left_out.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace headrace {
namespace {

constexpr std::array kTiff = {std::byte{'I'}, std::byte{'I'}, std::byte{'*'}, std::byte{0}};

TEST(TiffLeftOutTest, AnyTiffIsRefusedWithTheRemedies) {
  const auto opened = RefuseTiff(kTiff, 100);
  EXPECT_EQ(opened.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(opened.status().message(),
            "decoding TIFF image of 4 bytes: this build of headrace cannot decode TIFF: convert "
            "the files to PNG, decode them by Pillow in a Python transform, or build headrace from "
            "source, which uses the system's libtiff");
}

TEST(TiffLeftOutTest, OtherProgramsMayDecodeIt) { EXPECT_TRUE(IsTiffLeftOut(kTiff)); }

TEST(TiffLeftOutTest, TheBuildSaysWhetherItDecodesTiff) {
  const auto opened = OpenImage(kTiff, 100);
  ASSERT_FALSE(opened.ok());
  const bool is_left_out = opened.status().message().find("this build") != std::string::npos;
  EXPECT_EQ(is_left_out, !DecodesTiff());
}

}  // namespace
}  // namespace headrace
