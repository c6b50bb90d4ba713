#include "store/objects/cell_space.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::uint64_t kUnit = CellSpace::kUnitBytes;

TEST(CellSpaceTest, TakesTheLowestRangeThatFitsInWholePages) {
  CellSpace space(10 * kUnit);
  EXPECT_EQ(space.Take(1), 0U);
  EXPECT_EQ(space.Take(kUnit + 1), kUnit);
  EXPECT_EQ(space.Take(kUnit), 3 * kUnit);
  EXPECT_EQ(space.used_bytes(), 4 * kUnit);
  EXPECT_EQ(space.Take(7 * kUnit), std::nullopt);
  space.Release(kUnit);
  EXPECT_EQ(space.Take(3 * kUnit), 4 * kUnit);
  EXPECT_EQ(space.Take(2 * kUnit), kUnit);
  EXPECT_EQ(space.Take(3 * kUnit), 7 * kUnit);
  EXPECT_EQ(space.Take(1), std::nullopt);
}

// Against a list of pages.
TEST(CellSpaceTest, AnyOrderOfCallsKeepsCellsApartAndLosesNoPage) {
  constexpr std::uint64_t kPages = 64;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Prng draw(seed, 0, RandomStream::kOrder);
    CellSpace space(kPages * kUnit);
    std::vector<bool> used(kPages);
    std::map<std::uint64_t, std::uint64_t> cells;  // pages by the first
    for (int step = 0; step < 400; ++step) {
      if (draw.Below(2) == 0 && !cells.empty()) {
        const auto cell = std::next(cells.begin(), static_cast<int>(draw.Below(cells.size())));
        std::fill_n(used.begin() + static_cast<int>(cell->first), cell->second, false);
        space.Release(cell->first * kUnit);
        cells.erase(cell);
      } else {
        const std::uint64_t bytes = 1 + draw.Below(draw.Below(20) * kUnit + 1);
        const std::uint64_t pages = CellSpace::ChargedBytes(bytes) / kUnit;
        const auto fit = std::search_n(used.begin(), used.end(), static_cast<int>(pages), false);
        const std::optional<std::uint64_t> taken = space.Take(bytes);
        ASSERT_EQ(taken.has_value(), fit != used.end());
        if (!taken) continue;
        ASSERT_EQ(*taken, static_cast<std::uint64_t>(fit - used.begin()) * kUnit);
        std::fill_n(fit, pages, true);
        cells[*taken / kUnit] = pages;
      }
      ASSERT_EQ(space.used_bytes(),
                static_cast<std::uint64_t>(std::ranges::count(used, true)) * kUnit);
    }
    for (const auto& [page, pages] : cells) space.Release(page * kUnit);
    EXPECT_EQ(space.Take(kPages * kUnit), 0U);
  }
}

}  // namespace
}  // namespace headrace
