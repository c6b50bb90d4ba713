#include "tier/unit_space.h"

#include <algorithm>
#include <array>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using Runs = std::vector<UnitRun>;

TEST(UnitSpaceTest, GivesTheShortestGapThatIsLongEnough) {
  UnitSpace space(20);
  ASSERT_EQ(*space.Take(20), (Runs{{0, 20}}));
  space.Free(Runs{{0, 5}, {8, 3}, {15, 5}});
  EXPECT_EQ(*space.Take(3), (Runs{{8, 3}}));
  EXPECT_EQ(*space.Take(2), (Runs{{0, 2}}));
}

TEST(UnitSpaceTest, GivesTheLongestGapsWhereNoneIsLongEnough) {
  UnitSpace space(20);
  ASSERT_TRUE(space.Take(20));
  space.Free(Runs{{0, 2}, {5, 4}, {12, 3}});
  EXPECT_EQ(*space.Take(8), (Runs{{5, 4}, {12, 3}, {0, 1}}));
  EXPECT_FALSE(space.Take(2).has_value());
  EXPECT_EQ(*space.Take(1), (Runs{{1, 1}}));
}

TEST(UnitSpaceTest, GivesAllThereIsAndNothingBeyond) {
  UnitSpace space(3);
  EXPECT_FALSE(space.Take(4).has_value());
  EXPECT_TRUE(space.Take(3).has_value());
  EXPECT_FALSE(space.Take(1).has_value());
  EXPECT_FALSE(UnitSpace(0).Take(1).has_value());
}

TEST(UnitSpaceTest, ReservesWhatIsFreeAndInsideOrNothing) {
  UnitSpace space(10);
  EXPECT_TRUE(space.Reserve(Runs{{2, 3}}));
  EXPECT_FALSE(space.Reserve(Runs{{4, 1}}));
  EXPECT_FALSE(space.Reserve(Runs{{0, 3}}));
  EXPECT_FALSE(space.Reserve(Runs{{9, 2}}));
  EXPECT_FALSE(space.Reserve(Runs{{5, 0}}));
  EXPECT_FALSE(space.Reserve(Runs{{0xffff'ffff, 2}}));
  EXPECT_FALSE(space.Reserve(Runs{{6, 2}, {7, 1}}));  // One unit twice.
  EXPECT_FALSE(space.Take(8).has_value());
  EXPECT_TRUE(space.Reserve(Runs{{0, 2}, {5, 5}}));
  EXPECT_FALSE(space.Take(1).has_value());
}

TEST(UnitSpaceTest, NeighboursBecomeOneGapAgain) {
  UnitSpace space(9);
  ASSERT_TRUE(space.Take(9));
  space.Free(Runs{{0, 3}});
  space.Free(Runs{{6, 3}});
  space.Free(Runs{{3, 3}});
  EXPECT_EQ(*space.Take(9), (Runs{{0, 9}}));
}

TEST(UnitSpaceDeathTest, AUnitIsFreedOnce) {
  UnitSpace space(9);
  ASSERT_TRUE(space.Take(9));
  space.Free(Runs{{3, 3}});
  EXPECT_DEATH(space.Free(Runs{{3, 1}}), "CHECK|check");
  EXPECT_DEATH(space.Free(Runs{{2, 2}}), "CHECK|check");
  EXPECT_DEATH(space.Free(Runs{{5, 1}}), "CHECK|check");
}

TEST(UnitSpaceTest, DoesAsAnArrayOfFlagsDoes) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed, 0, RandomStream::kOrder);
    constexpr std::uint32_t kUnits = 200;
    UnitSpace space(kUnits);
    std::array<bool, kUnits> taken{};
    std::vector<Runs> held;
    for (int step = 0; step < 500; ++step) {
      const std::uint64_t wanted = 1 + prng.Below(20);
      if (prng.Below(2) == 0) {
        const auto runs = space.Take(wanted);
        const auto free = std::count(taken.begin(), taken.end(), false);
        ASSERT_EQ(runs.has_value(), wanted <= static_cast<std::uint64_t>(free));
        if (!runs.has_value()) continue;
        std::uint64_t sum = 0;
        for (const UnitRun run : *runs) {
          sum += run.count;
          for (std::uint32_t i = 0; i < run.count; ++i) {
            ASSERT_FALSE(taken.at(run.first + i));
            taken.at(run.first + i) = true;
          }
        }
        ASSERT_EQ(sum, wanted);
        held.push_back(*runs);
      } else if (!held.empty()) {
        const std::size_t place = prng.Below(held.size());
        for (const UnitRun run : held[place]) {
          for (std::uint32_t i = 0; i < run.count; ++i) taken.at(run.first + i) = false;
        }
        space.Free(held[place]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
      }
    }
  }
}

}  // namespace
}  // namespace headrace
