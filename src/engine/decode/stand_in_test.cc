#include "engine/decode/stand_in.h"

#include <set>

#include "gtest/gtest.h"

namespace headrace {
namespace {

TEST(StandInTest, IsAnotherSampleOfTheDataset) {
  for (std::uint64_t wanted = 0; wanted < 5; ++wanted) {
    for (std::uint32_t draws = 0; draws < 50; ++draws) {
      const SampleId drawn = DrawStandIn(/*seed=*/3, /*epoch=*/1, SampleId{wanted}, draws, 5);
      EXPECT_NE(drawn, SampleId{wanted});
      EXPECT_LT(Raw(drawn), 5U);
    }
  }
}

TEST(StandInTest, EverySampleMayStandIn) {
  std::set<SampleId> drawn;
  for (std::uint32_t draws = 0; draws < 100; ++draws) {
    drawn.insert(DrawStandIn(0, 0, SampleId{2}, draws, 5));
  }
  EXPECT_EQ(drawn, (std::set<SampleId>{SampleId{0}, SampleId{1}, SampleId{3}, SampleId{4}}));
}

TEST(StandInTest, OfTwoSamplesItIsTheOther) {
  EXPECT_EQ(DrawStandIn(1, 2, SampleId{0}, 0, 2), SampleId{1});
  EXPECT_EQ(DrawStandIn(1, 2, SampleId{1}, 7, 2), SampleId{0});
}

// Part of what a seed promises: a change here delivers other samples.
TEST(StandInTest, DrawsAreFrozen) {
  std::vector<std::uint64_t> drawn;
  for (std::uint32_t draws = 0; draws < 4; ++draws) {
    drawn.push_back(Raw(DrawStandIn(7, 3, SampleId{10}, draws, 1000)));
  }
  EXPECT_EQ(drawn, (std::vector<std::uint64_t>{651, 68, 60, 901}));
}

TEST(StandInTest, ErrorsOfTheProcessAreNoneOfTheSample) {
  EXPECT_TRUE(IsErrorOfSample(StatusCode::kDataLoss));
  EXPECT_TRUE(IsErrorOfSample(StatusCode::kUnavailable));
  EXPECT_FALSE(IsErrorOfSample(StatusCode::kResourceExhausted));
  EXPECT_FALSE(IsErrorOfSample(StatusCode::kCancelled));
}

}  // namespace
}  // namespace headrace
