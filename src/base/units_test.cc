#include "base/units.h"

#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(UnitsTest, FormatsBytesWithOneUnit) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536 * kMiB), "1.5 GiB");
}

TEST(UnitsTest, RoundsUp) {
  EXPECT_EQ(RoundUp(0, 4096), 0);
  EXPECT_EQ(RoundUp(1, 4096), 4096);
  EXPECT_EQ(RoundUp(4096, 4096), 4096);
}

}  // namespace
}  // namespace headrace
