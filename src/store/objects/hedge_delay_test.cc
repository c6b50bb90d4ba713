#include "store/objects/hedge_delay.h"

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(HedgeDelayTest, IsTheLargeBoundUntilAHundredWaitsAreKnown) {
  HedgeDelay delay({.unknown_ns = 777});
  for (int i = 0; i < 99; ++i) delay.Add(20'000'000);
  EXPECT_EQ(delay.delay_ns(), 777);
  delay.Add(20'000'000);
  EXPECT_EQ(delay.delay_ns(), 60'000'000);
}

TEST(HedgeDelayTest, IsAtLeastItsMinimum) {
  HedgeDelay delay({.min_ns = 500});
  for (int i = 0; i < 200; ++i) delay.Add(1);
  EXPECT_EQ(delay.delay_ns(), 500);
}

TEST(HedgeDelayTest, FewVeryLongWaitsDoNotRaiseIt) {
  HedgeDelay delay({});
  for (int i = 0; i < 1000; ++i) delay.Add(i % 100 == 0 ? 1'000'000'000 : 10'000'000);
  EXPECT_EQ(delay.delay_ns(), 30'000'000);
}

TEST(HedgeDelayTest, ForgetsWhatIsOlderThanItsMemory) {
  HedgeDelay delay({});
  for (int i = 0; i < 5000; ++i) delay.Add(10'000'000);
  const auto enough = HedgeDelay::kSamples + HedgeDelay::kEvery;
  for (std::size_t i = 0; i < enough; ++i) delay.Add(100'000'000);
  EXPECT_EQ(delay.delay_ns(), 300'000'000);
}

// The last kSamples waits, sorted; computed each time.
TEST(HedgeDelayTest, LiesBetweenTheModelsQuantilesSinceItWasLastComputed) {
  Prng prng(3, 0, RandomStream::kOrder);
  HedgeDelay delay({.factor = 1, .min_ns = 0});
  std::vector<std::int64_t> all;
  std::vector<std::int64_t> models;
  for (std::size_t i = 0; i < 3000; ++i) {
    all.push_back(static_cast<std::int64_t>(1 + prng.Below(1000) + prng.Below(i + 1)));
    delay.Add(all.back());
    std::vector<std::int64_t> last(
        all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), HedgeDelay::kSamples)),
        all.end());
    std::sort(last.begin(), last.end());
    models.push_back(last[static_cast<std::size_t>(0.95 * static_cast<double>(last.size()))]);
    if (all.size() < HedgeDelay::kSamplesMin) continue;
    const std::size_t back =
        std::min(models.size() - HedgeDelay::kSamplesMin + 1, HedgeDelay::kEvery);
    EXPECT_NE(
        std::find(models.end() - static_cast<std::ptrdiff_t>(back), models.end(), delay.delay_ns()),
        models.end());
  }
}

}  // namespace
}  // namespace headrace
