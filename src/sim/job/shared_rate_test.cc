#include "sim/job/shared_rate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(SharedRateTest, ATransferAloneHasTheWholeRate) {
  SimLoop loop;
  SharedRate rate(loop, 2, [](std::uint32_t, std::uint64_t) { return 100.0; });
  std::int64_t end = 0;
  rate.Transfer(0, 250, [&] { end = loop.now_ns(); });
  ASSERT_TRUE(loop.RunUntilIdle(100));
  EXPECT_EQ(end, 5 * kSecond / 2);
  EXPECT_DOUBLE_EQ(rate.bytes(), 250);
  EXPECT_NEAR(rate.seconds(), 2.5, 1e-9);
}

TEST(SharedRateTest, TheRateChangesWhileATransferIsUnderWay) {
  SimLoop loop;
  SharedRate rate(loop, 2, [](std::uint32_t users, std::uint64_t) { return 100.0 / users; });
  std::vector<std::int64_t> ends(2);
  rate.Transfer(0, 200, [&] { ends[0] = loop.now_ns(); });
  loop.After(kSecond, [&] { rate.Transfer(1, 100, [&] { ends[1] = loop.now_ns(); }); });
  ASSERT_TRUE(loop.RunUntilIdle(100));
  // After a second 100 are left of each, and both get 50 a second.
  EXPECT_EQ(ends[0], 3 * kSecond);
  EXPECT_EQ(ends[1], 3 * kSecond);
}

TEST(SharedRateTest, NothingTakesNoTime) {
  SimLoop loop;
  SharedRate rate(loop, 1, [](std::uint32_t, std::uint64_t) { return 1e300; });
  int ended = 0;
  rate.Transfer(0, 0, [&] { ++ended; });
  rate.Transfer(0, 1e9, [&] { ++ended; });
  ASSERT_TRUE(loop.RunUntilIdle(100));
  EXPECT_EQ(ended, 2);
  EXPECT_LE(loop.now_ns(), 1);
}

struct Arrival {
  double at = 0;
  std::uint32_t user = 0;
  double bytes = 0;
};

double EachRate(std::uint32_t users, std::uint64_t transfers) {
  return 1000.0 / (1 + users) / std::sqrt(static_cast<double>(transfers));
}

// The obvious way: from one arrival or end to the next, every transfer's bytes counted down.
std::vector<double> SlowEnds(const std::vector<Arrival>& arrivals, std::uint32_t users) {
  std::vector<double> left;
  for (const Arrival& arrival : arrivals) left.push_back(arrival.bytes);
  std::vector<double> ends(arrivals.size(), -1);
  double now = 0;
  for (;;) {
    std::vector<std::uint64_t> of_user(users);
    std::vector<std::size_t> under_way;
    double next = INFINITY;
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      if (ends[i] >= 0) continue;
      if (arrivals[i].at > now) {
        next = std::min(next, arrivals[i].at);
        continue;
      }
      under_way.push_back(i);
      ++of_user[arrivals[i].user];
    }
    if (under_way.empty() && next == INFINITY) return ends;
    const auto active = static_cast<std::uint32_t>(
        std::ranges::count_if(of_user, [](std::uint64_t count) { return count > 0; }));
    for (const std::size_t i : under_way) {
      next = std::min(next, now + left[i] / EachRate(active, of_user[arrivals[i].user]));
    }
    for (const std::size_t i : under_way) {
      left[i] -= (next - now) * EachRate(active, of_user[arrivals[i].user]);
      if (left[i] < 1e-6) ends[i] = next;
    }
    now = next;
  }
}

TEST(SharedRateTest, EndsWhenASlowModelSays) {
  constexpr std::uint32_t kUsers = 3;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Prng random(seed, 0, RandomStream::kOrder, 0x5ea1);
    std::vector<Arrival> arrivals(1 + random.Below(30));
    for (Arrival& arrival : arrivals) {
      arrival = {.at = static_cast<double>(random.Below(20)) / 4,
                 .user = static_cast<std::uint32_t>(random.Below(kUsers)),
                 .bytes = static_cast<double>(1 + random.Below(2000))};
    }
    SimLoop loop;
    SharedRate rate(loop, kUsers, EachRate);
    std::vector<double> ends(arrivals.size());
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      loop.After(static_cast<std::int64_t>(arrivals[i].at * kSecond), [&, i] {
        rate.Transfer(arrivals[i].user, arrivals[i].bytes,
                      [&, i] { ends[i] = static_cast<double>(loop.now_ns()) / kSecond; });
      });
    }
    ASSERT_TRUE(loop.RunUntilIdle(10'000)) << "seed " << seed;
    const std::vector<double> slow = SlowEnds(arrivals, kUsers);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      ASSERT_NEAR(ends[i], slow[i], 1e-6) << "seed " << seed << ", transfer " << i;
    }
  }
}

}  // namespace
}  // namespace headrace
