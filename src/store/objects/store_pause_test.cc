#include "store/objects/store_pause.h"

#include <algorithm>
#include <optional>

#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr StorePause::Options kShortWaits{
    .first_ns = 100, .max_ns = 1000, .retry_after_max_ns = 5000, .deadline_ns = 30'000};

class StorePauseTest : public testing::Test {
 protected:
  Prng prng_{5, 0, RandomStream::kOrder};
  StorePause pause_{kShortWaits, prng_};
};

TEST_F(StorePauseTest, JitterIsUniformBelowADoublingEnd) {
  for (std::uint32_t failures = 1; failures < 100; ++failures) {
    const std::int64_t end_ns = failures < 5 ? std::int64_t{100} << (failures - 1) : 1000;
    std::int64_t most_ns = 0;
    std::int64_t sum_ns = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::int64_t wait_ns = JitterNs(100, 1000, failures, prng_);
      ASSERT_GE(wait_ns, 0);
      ASSERT_LT(wait_ns, end_ns);
      most_ns = std::max(most_ns, wait_ns);
      sum_ns += wait_ns;
    }
    EXPECT_GT(most_ns, end_ns * 9 / 10);
    EXPECT_NEAR(static_cast<double>(sum_ns) / 1000, static_cast<double>(end_ns) / 2,
                static_cast<double>(end_ns) / 20);
  }
}

TEST_F(StorePauseTest, WaitsAsLongAsTheStoreSaysUpToABound) {
  pause_.SlowDown(700, /*fresh=*/true, /*now_ns=*/1000);
  EXPECT_EQ(pause_.resume_ns(), 1700);
  pause_.SlowDown(100, /*fresh=*/false, /*now_ns=*/1100);
  EXPECT_EQ(pause_.resume_ns(), 1700) << "a shorter wait does not shorten it";
  pause_.SlowDown(800, /*fresh=*/false, /*now_ns=*/1200);
  EXPECT_EQ(pause_.resume_ns(), 2000);
  pause_.SlowDown(1'000'000, /*fresh=*/true, /*now_ns=*/2000);
  EXPECT_EQ(pause_.resume_ns(), 7000);
  pause_.SlowDown(-5, /*fresh=*/true, /*now_ns=*/8000);
  EXPECT_EQ(pause_.resume_ns(), 8000);
}

TEST_F(StorePauseTest, OnlyFreshAnswersMakeItWait) {
  pause_.SlowDown({}, /*fresh=*/false, /*now_ns=*/1000);
  EXPECT_EQ(pause_.resume_ns(), 1000);
  std::int64_t most_ns = 0;
  for (std::int64_t now_ns = 2000; now_ns < 200'000; now_ns += 2000) {
    pause_.SlowDown({}, /*fresh=*/true, now_ns);
    ASSERT_LE(now_ns, pause_.resume_ns());
    ASSERT_LT(pause_.resume_ns(), now_ns + 1000);
    most_ns = std::max(most_ns, pause_.resume_ns() - now_ns);
  }
  EXPECT_GT(most_ns, 900);
}

TEST_F(StorePauseTest, ALongTimeWithoutReadsIsNotTheStores) {
  for (const bool rests : {false, true}) {
    pause_.Success();
    pause_.SlowDown({}, /*fresh=*/true, 1000);
    pause_.Rested(rests ? 5001 : 5000);
    EXPECT_EQ(pause_.slow(), !rests);
    pause_.SlowDown({}, /*fresh=*/true, 40'000);
    EXPECT_EQ(pause_.expired(40'000), !rests);
  }
}

TEST_F(StorePauseTest, ASuccessMakesTheNextWaitShortAndEndsTheDeadline) {
  for (std::int64_t i = 0; i < 10; ++i) pause_.SlowDown({}, true, 1000 * i);
  EXPECT_TRUE(pause_.slow());
  EXPECT_FALSE(pause_.expired(29'999));
  EXPECT_TRUE(pause_.expired(30'000)) << "counts from the first";
  const std::int64_t resume_ns = pause_.resume_ns();
  pause_.Success();
  EXPECT_FALSE(pause_.slow());
  EXPECT_FALSE(pause_.expired(1'000'000));
  EXPECT_EQ(pause_.resume_ns(), resume_ns);
  for (std::int64_t i = 0; i < 50; ++i) {
    const std::int64_t now_ns = 20'000 + 200 * i;
    pause_.SlowDown({}, true, now_ns);
    EXPECT_LT(pause_.resume_ns(), now_ns + 100);
    pause_.Success();
  }
}

}  // namespace
}  // namespace headrace
