#include "plan/home_tables.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/index.h"
#include "headrace/index_writer.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::MakeExtent;
using testing::ElementsAre;
using testing::Pointee;

// Samples of 10 bytes each, in these objects.
std::shared_ptr<const Index> Dataset(const std::vector<std::string>& names,
                                     const std::vector<std::uint64_t>& objects,
                                     const std::vector<std::uint64_t>& blocks = {}) {
  IndexContents contents;
  contents.sample_count = objects.size();
  contents.root = "/data";
  for (const std::string& name : names) contents.objects.push_back({.name = name, .size = 1000});
  contents.fields.push_back({.info = {.name = "data"}});
  for (std::size_t i = 0; i < objects.size(); ++i) {
    contents.fields.back().extents.push_back(MakeExtent(objects[i], 10 * i, 10));
  }
  std::uint64_t first = 0;
  for (const std::uint64_t count : blocks) {
    contents.blocks.push_back({.first_sample = SampleId{first},
                               .sample_count = count,
                               .extent = MakeExtent(objects[first], 10 * first, 10 * count),
                               .checksum = std::nullopt});
    first += count;
  }
  const internal::TestFolder folder;
  const Status status = WriteIndex(contents, folder / "index");
  EXPECT_TRUE(status.ok()) << status.message();
  return Index::Open(folder / "index").value();
}

std::vector<std::uint64_t> SamplesOfBlocks(const BlockMap& blocks) {
  std::vector<std::uint64_t> counts;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) counts.push_back(blocks.block(i).count);
  return counts;
}

TEST(HomeTablesTest, EachSampleHasTheHomeOfItsObject) {
  const auto index = Dataset({"home-0/a", "home-1/b"}, {1, 1, 0, 1});
  EXPECT_THAT(HomeTable(*index).value(), Pointee(ElementsAre(1, 1, 0, 1)));
}

TEST(HomeTablesTest, ADatasetOfOneHomeHasNoTable) {
  EXPECT_EQ(HomeTable(*Dataset({"a", "home-1/b"}, {0, 1})).value(), nullptr);
}

TEST(HomeTablesTest, WhatIsWrongWithHomesIsTheError) {
  EXPECT_EQ(HomeTable(*Dataset({"home-1/a"}, {0})).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(HomeTablesTest, BlocksOfTheIndexHaveTheHomesOfTheirObjects) {
  const auto index = Dataset({"home-0/a", "home-1/b", "home-2/c"}, {2, 2, 0, 1, 1, 1}, {2, 1, 3});
  const auto blocks = MakeIndexBlocks(index, 0).value();
  EXPECT_THAT(SamplesOfBlocks(*blocks), ElementsAre(2, 1, 3));
  EXPECT_THAT(HomesOfBlocks(*blocks, *HomeTable(*index).value()).value(), ElementsAre(2, 0, 1));
}

TEST(HomeTablesTest, BlocksThatTheIndexDoesNotHaveEndWhereTheHomeChanges) {
  const auto index = Dataset({"home-0/a", "home-1/b"}, {0, 0, 0, 1, 1, 0, 0, 0, 0});
  for (const std::uint64_t block_samples : {0U, 64U}) {
    const auto blocks = MakeIndexBlocks(index, block_samples).value();
    EXPECT_THAT(SamplesOfBlocks(*blocks), ElementsAre(3, 2, 4));
    EXPECT_THAT(HomesOfBlocks(*blocks, *HomeTable(*index).value()).value(), ElementsAre(0, 1, 0));
  }
  EXPECT_THAT(SamplesOfBlocks(*MakeIndexBlocks(index, 2).value()), ElementsAre(2, 1, 2, 2, 2));
  EXPECT_THAT(SamplesOfBlocks(*MakeIndexBlocks(Dataset({"a", "b"}, {0, 0, 0, 1, 1}), 2).value()),
              ElementsAre(2, 2, 1));
}

TEST(HomeTablesTest, ABlockOfTwoHomesIsRefusedByItsSamples) {
  const auto blocks = MakeUniformBlocks(5, 2);
  const std::vector<std::uint32_t> homes = {3, 3, 1, 0, 0};
  const Status status = HomesOfBlocks(*blocks, homes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "homes: block 1 (samples 2 to 3) has samples of homes 1 and 0, but "
            "must have one");
}

TEST(HomeTablesTest, ATableOfAnotherLengthIsRefused) {
  const std::vector<std::uint32_t> homes(4);
  const Status status = HomesOfBlocks(*MakeUniformBlocks(5, 2), homes).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "homes: got 4 numbers for 5 samples; give one for each");
}

}  // namespace
}  // namespace headrace
