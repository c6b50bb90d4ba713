#include "store/objects/read_window.h"

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr ReadWindow::Options kFewAttempts{.min = 2, .start = 4, .max = 6};

TEST(ReadWindowTest, GrowsByOneAfterAFullWindowOfSuccessesUpToTheMaximum) {
  ReadWindow window(kFewAttempts);
  for (int i = 0; i < 3; ++i) window.Success(/*in_flight=*/4);
  EXPECT_EQ(window.limit(), 4U);
  window.Success(4);
  EXPECT_EQ(window.limit(), 5U);
  for (int i = 0; i < 100; ++i) window.Success(6);
  EXPECT_EQ(window.limit(), 6U);
}

TEST(ReadWindowTest, DoesNotGrowWhileItIsNotFull) {
  ReadWindow window(kFewAttempts);
  for (int i = 0; i < 100; ++i) window.Success(/*in_flight=*/3);
  EXPECT_EQ(window.limit(), 4U);
}

TEST(ReadWindowTest, IsHalvedOnceARoundTripDownToTheMinimum) {
  ReadWindow window({.min = 2, .start = 16, .max = 16});
  EXPECT_TRUE(window.SlowDown(/*started_ns=*/0, /*now_ns=*/10));
  EXPECT_EQ(window.limit(), 8U);
  EXPECT_FALSE(window.SlowDown(/*started_ns=*/9, /*now_ns=*/12));
  EXPECT_FALSE(window.SlowDown(/*started_ns=*/10, /*now_ns=*/13));
  EXPECT_EQ(window.limit(), 8U);
  EXPECT_TRUE(window.SlowDown(/*started_ns=*/11, /*now_ns=*/20));
  EXPECT_TRUE(window.SlowDown(/*started_ns=*/21, /*now_ns=*/30));
  EXPECT_TRUE(window.SlowDown(/*started_ns=*/31, /*now_ns=*/40));
  EXPECT_EQ(window.limit(), 2U);
}

// The definition, with all answers kept.
TEST(ReadWindowTest, EqualsAModelUnderRandomAnswers) {
  Prng prng(7, 0, RandomStream::kOrder);
  for (int round = 0; round < 200; ++round) {
    const auto max = static_cast<std::uint32_t>(1 + prng.Below(40));
    const auto start = static_cast<std::uint32_t>(1 + prng.Below(max));
    const auto min = static_cast<std::uint32_t>(1 + prng.Below(start));
    ReadWindow window({.min = min, .start = start, .max = max});
    std::uint32_t limit = start;
    std::uint32_t full = 0;
    std::int64_t halved_ns = -1;
    for (std::int64_t now_ns = 100; now_ns < 600; ++now_ns) {
      const auto in_flight = static_cast<std::uint32_t>(prng.Below(limit + 2));
      const auto started_ns = now_ns - static_cast<std::int64_t>(prng.Below(50));
      if (prng.Below(60) == 0) {
        const bool fresh = started_ns > halved_ns;
        EXPECT_EQ(window.SlowDown(started_ns, now_ns), fresh);
        if (fresh) {
          limit = limit / 2 > min ? limit / 2 : min;
          full = 0;
          halved_ns = now_ns;
        }
      } else {
        window.Success(in_flight);
        if (in_flight >= limit) ++full;
        if (full == limit) {
          full = 0;
          if (limit < max) ++limit;
        }
      }
      ASSERT_EQ(window.limit(), limit);
      ASSERT_TRUE(min <= limit && limit <= max);
    }
  }
}

}  // namespace
}  // namespace headrace
