#include "base/units.h"

#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(UnitsTest, FormatsBytesWithOneUnit) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1), "1 byte");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(1536 * kMiB), "1.5 GiB");
}

TEST(UnitsTest, OneIsSingularAndAllElsePlural) {
  EXPECT_EQ(Counted(0, "file"), "0 files");
  EXPECT_EQ(Counted(1, "file"), "1 file");
  EXPECT_EQ(Counted(1200, "file"), "1200 files");
}

TEST(UnitsTest, RoundsUp) {
  EXPECT_EQ(RoundUp(0, 4096), 0);
  EXPECT_EQ(RoundUp(1, 4096), 4096);
  EXPECT_EQ(RoundUp(4096, 4096), 4096);
}

}  // namespace
}  // namespace headrace
