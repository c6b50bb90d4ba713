#include "plan/epoch/epoch_homes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

std::vector<std::uint64_t> BlocksOf(const EpochHomes& homes, std::uint32_t home) {
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < homes.blocks(home).size(); ++i) {
    blocks.push_back(homes.blocks(home).At(i));
  }
  return blocks;
}

TEST(EpochHomesTest, WithoutATableBlocksAreDealtInTurn) {
  const auto homes = EpochHomes::Make(*MakeUniformBlocks(65, 10), 3, nullptr).value();
  EXPECT_EQ(homes->count(), 3U);
  EXPECT_EQ(BlocksOf(*homes, 0), (std::vector<std::uint64_t>{0, 3, 6}));
  EXPECT_EQ(BlocksOf(*homes, 1), (std::vector<std::uint64_t>{1, 4}));
  EXPECT_EQ(BlocksOf(*homes, 2), (std::vector<std::uint64_t>{2, 5}));
  EXPECT_EQ(homes->samples(), (std::vector<std::uint64_t>{25, 20, 20}));
  EXPECT_EQ(homes->most_samples(), 25U);
  EXPECT_EQ(homes->least_home(), 1U);
}

TEST(EpochHomesTest, ATableGivesEachBlockTheNodeOfItsSamples) {
  const auto table =
      std::make_shared<const std::vector<std::uint32_t>>(std::vector<std::uint32_t>{1, 1, 0, 0, 1});
  const auto homes = EpochHomes::Make(*MakeUniformBlocks(5, 2), 2, table).value();
  EXPECT_EQ(BlocksOf(*homes, 0), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(BlocksOf(*homes, 1), (std::vector<std::uint64_t>{0, 2}));
  EXPECT_EQ(homes->samples(), (std::vector<std::uint64_t>{2, 3}));
}

TEST(EpochHomesTest, ATableThatGivesABlockNoHomeIsNamed) {
  const auto error = [](std::uint32_t count, std::vector<std::uint32_t> table) {
    const Status status =
        EpochHomes::Make(*MakeUniformBlocks(5, 2), count,
                         std::make_shared<const std::vector<std::uint32_t>>(std::move(table)))
            .status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error(2, {0, 0, 1, 0, 1}),
            "homes: block 1 (samples 2 to 3) has samples of homes 1 and 0, but "
            "must have one");
  EXPECT_EQ(error(2, {0, 0, 1, 1, 2}),
            "order epoch: the home of block 2 (sample 4) is node 2, must be below 2, the number of "
            "homes");
  EXPECT_EQ(error(2, {0, 0, 1, 1}), "homes: got 4 numbers for 5 samples; give one for each");
  EXPECT_EQ(error(3, {0, 0, 2, 2, 0}),
            "order epoch: homes: got 3, but node 1 is the home of none of the 3 blocks; give every "
            "node a block, or lower homes=");
  const Status few = EpochHomes::Make(*MakeUniformBlocks(5, 2), 4, nullptr).status();
  EXPECT_EQ(few.code(), StatusCode::kInvalidArgument);
}

std::vector<std::uint32_t> Turns(const std::vector<std::uint64_t>& samples) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> turns;
  std::uint64_t common = 1;
  for (const std::uint64_t n : samples) common = std::lcm(common, n);
  for (std::uint32_t home = 0; home < samples.size(); ++home) {
    for (std::uint64_t j = 0; j < samples[home]; ++j) {
      turns.emplace_back((2 * j + 1) * (common / samples[home]), home);
    }
  }
  std::ranges::sort(turns);
  std::vector<std::uint32_t> homes;
  for (const auto& [turn, home] : turns) homes.push_back(home);
  return homes;
}

TEST(HomeTurnsTest, HomesComeInTheOrderOfTheirSamplesPlacesFromEveryPosition) {
  Prng prng(1, 0, RandomStream::kAugment);
  for (int job = 0; job < 200; ++job) {
    std::vector<std::uint64_t> samples(1 + prng.Below(7));
    for (std::uint64_t& n : samples) n = 1 + prng.Below(1 + prng.Below(40));
    if (job % 4 == 0) std::ranges::fill(samples, samples[0]);
    const std::vector<std::uint32_t> expected = Turns(samples);
    HomeTurns turns(samples);
    for (std::size_t start = 0; start <= expected.size(); ++start) {
      turns.Seek(start);
      for (std::uint32_t home = 0; home < samples.size(); ++home) {
        ASSERT_EQ(turns.taken()[home],
                  std::count(expected.begin(),
                             expected.begin() + static_cast<std::ptrdiff_t>(start), home));
      }
      for (std::size_t at = start; at < expected.size(); ++at) {
        ASSERT_EQ(turns.home(), expected[at]) << at << " from " << start;
        turns.Advance();
      }
    }
  }
}

TEST(HomeTurnsTest, HomesOfEqualSizeTakeTurnsInTheLargestDatasets) {
  constexpr std::uint64_t kSamples = std::uint64_t{1} << 38;
  HomeTurns turns({kSamples, kSamples, kSamples, kSamples});
  turns.Seek(3 * kSamples + 1);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ASSERT_EQ(turns.home(), (3 * kSamples + 1 + i) % 4);
    turns.Advance();
  }
}

}  // namespace
}  // namespace headrace
