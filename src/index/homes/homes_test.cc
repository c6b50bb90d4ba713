#include "index/homes/homes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::MakeExtent;
using internal::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = 10;  // of each file

// A dataset of files of kBytes each, and samples of them.
class Dataset {
 public:
  explicit Dataset(const std::vector<std::string>& names, std::int64_t mtime_ns = 0) {
    contents_.root = folder_.path();
    for (const std::string& name : names) {
      contents_.objects.push_back({.name = name, .size = kBytes, .mtime_ns = mtime_ns});
    }
  }

  // A field whose sample i lies in object objects[i].
  void AddField(const std::string& name, const std::vector<std::uint64_t>& objects) {
    contents_.sample_count = objects.size();
    contents_.fields.push_back({.info = {.name = name}});
    for (const std::uint64_t object : objects) {
      contents_.fields.back().extents.push_back(MakeExtent(object, 0, kBytes));
    }
  }

  void AddLabels(std::uint64_t count) {
    contents_.sample_count = count;
    contents_.fields.push_back({.info = {.name = "label",
                                         .kind = FieldKind::kArray,
                                         .dtype = DType::kUInt8,
                                         .is_inline = true}});
    contents_.fields.back().inline_values.resize(count);
  }

  void SetRoot(std::string root) { contents_.root = std::move(root); }

  std::shared_ptr<const Index> Open() const {
    const Status status = WriteIndex(contents_, folder_ / "index.hri");
    EXPECT_TRUE(status.ok()) << status.message();
    return Index::Open(folder_ / "index.hri").value();
  }

  // Writes the files in the folder of `home`.
  void Copy(std::uint32_t home) const {
    std::filesystem::create_directory(folder_ / HomeFolder(home));
    for (const IndexContents::Object& object : contents_.objects) {
      if (HomeFolderOf(object.name) == home) Write(object.name, kBytes);
    }
  }

  void Write(const std::string& name, std::uint64_t bytes) const {
    std::ofstream(folder_ / name) << std::string(bytes, 'x');
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  TestFolder folder_;
  IndexContents contents_;
};

// Samples 0 to 3 in the files of homes 1, 0, 2, 0.
class ThreeHomes : public Dataset {
 public:
  explicit ThreeHomes(std::int64_t mtime_ns = 0)
      : Dataset({"home-0/a", "home-0/b", "home-1/c", "home-2/d"}, mtime_ns) {
    AddField("data", {2, 0, 3, 1});
  }
};

TEST(HomesTest, AFolderOfAHomeIsNamedByItsNumberAlone) {
  EXPECT_EQ(HomeFolderOf("home-0/a"), 0U);
  EXPECT_EQ(HomeFolderOf("home-12/a/b"), 12U);
  EXPECT_EQ(HomeFolderOf(HomeFolder(4294967294) + "/a"), 4294967294U);
  for (const std::string_view other :
       {"home-0", "home-/a", "home-01/a", "home--1/a", "home-+1/a", "home-1x/a", "home-1 /a",
        "homes-1/a", "a/home-1/b", "/home-1/a", "home-4294967296/a", ""}) {
    EXPECT_EQ(HomeFolderOf(other), kNoHomeFolder) << other;
  }
}

TEST(HomesTest, ObjectsSamplesAndTheirCountFollowFromNames) {
  const ThreeHomes dataset;
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  EXPECT_EQ(homes.count, 3U);
  EXPECT_THAT(homes.of_objects, ElementsAre(0, 0, 1, 2));
  EXPECT_EQ(homes.of(ObjectId{3}), 2U);
  EXPECT_THAT(HomesOfSamples(*index, homes).value(), ElementsAre(1, 0, 2, 0));
  EXPECT_EQ(HomeOfSample(*index, homes, SampleId{2}).value(), 2U);
  EXPECT_EQ(HomeOfSample(*index, homes, SampleId{4}).status().code(), StatusCode::kOutOfRange);
}

TEST(HomesTest, WithAFileOutsideADatasetHasOneHome) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"home-0/a", "home-1/b", "c"},
        std::vector<std::string>{"ant/a", "home-1/b", "home-2/c"},
        std::vector<std::string>{"home-0/a", "home-0/b", "home-0/c"}}) {
    Dataset dataset(names);
    dataset.AddField("data", {0, 1, 2});
    const auto index = dataset.Open();
    const Homes homes = HomesOf(*index).value();
    EXPECT_EQ(homes.count, 1U);
    EXPECT_EQ(homes.of(ObjectId{2}), 0U);
    EXPECT_THAT(HomesOfSamples(*index, homes).value(), ElementsAre(0, 0, 0));
    EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(true));
  }
}

TEST(HomesTest, WithoutObjectsADatasetHasOneHome) {
  Dataset dataset({});
  dataset.AddLabels(2);
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  EXPECT_EQ(homes.count, 1U);
  EXPECT_THAT(HomesOfSamples(*index, homes).value(), ElementsAre(0, 0));
}

TEST(HomesTest, AGapIsRefusedByName) {
  Dataset dataset({"home-0/a", "home-2/b"});
  dataset.AddField("data", {0, 1});
  const Status status = HomesOf(*dataset.Open()).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("it has files in home-2, but none in home-1"));

  Dataset later({"home-1/a"});
  later.AddField("data", {0});
  EXPECT_THAT(HomesOf(*later.Open()).status().message(),
              HasSubstr("it has files in home-1, but none in home-0"));
}

TEST(HomesTest, ASampleAtTwoHomesIsRefusedByName) {
  Dataset dataset({"home-0/a", "home-1/b"});
  dataset.AddLabels(2);
  dataset.AddField("image", {0, 1});
  dataset.AddField("mask", {0, 0});
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  EXPECT_EQ(HomeOfSample(*index, homes, SampleId{0}).value(), 0U);
  const Status status = HomesOfSamples(*index, homes).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("sample 1 has field 'image' at home 1, but 'mask' at home 0"));
}

TEST(HomesPresentTest, AHomeIsHereIfItsFolderIs) {
  const ThreeHomes dataset;
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(false, false, false));
  dataset.Copy(1);
  EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(false, true, false));
  dataset.Copy(0);
  dataset.Copy(2);
  std::filesystem::create_directory(dataset / HomeFolder(3));  // of no file of the index
  EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(true, true, true));
}

TEST(HomesPresentTest, AHomeThatIsNotWholeIsRefusedByTheNameOfItsFile) {
  const ThreeHomes dataset;
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  const auto says = [&] {
    const Status status = HomesPresent(*index, homes).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  dataset.Copy(0);
  std::filesystem::remove(dataset / "home-0/b");
  EXPECT_EQ(says(), "home 0 is not whole on this node: " + (dataset / "home-0/b") +
                        ": no such file; copy " + (dataset / "home-0") +
                        " again, or move it elsewhere if this node does not read it");
  dataset.Write("home-0/b", kBytes - 1);
  EXPECT_THAT(says(), HasSubstr("home-0/b: it has 9 bytes, 10 when it was indexed"));
  std::filesystem::remove(dataset / "home-0/b");
  std::filesystem::create_directory(dataset / "home-0/b");
  EXPECT_THAT(says(), HasSubstr("home-0/b: not a regular file"));
  std::filesystem::remove_all(dataset / "home-0");
  dataset.Write("home-0", kBytes);
  EXPECT_THAT(says(), HasSubstr("home-0: it is no folder"));
}

TEST(HomesPresentTest, WhatIsWrongWithOneHomeSaysNothingOfOthers) {
  const ThreeHomes dataset;
  const auto index = dataset.Open();
  dataset.Copy(1);
  dataset.Copy(2);
  dataset.Write("home-2/d", 1);
  const std::vector<Result<bool>> found = LookAtHomes(*index, HomesOf(*index).value());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_FALSE(found[0].value());
  EXPECT_TRUE(found[1].value());
  EXPECT_EQ(found[2].status().code(), StatusCode::kFailedPrecondition);
}

TEST(HomesPresentTest, TimesAreComparedWhereTheyWereIndexed) {
  const ThreeHomes dataset(/*mtime_ns=*/5);
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  dataset.Copy(2);
  EXPECT_THAT(HomesPresent(*index, homes).status().message(),
              HasSubstr("home-2/d: it was changed after it was indexed"));
  const struct timespec times[] = {{.tv_sec = 0, .tv_nsec = 5}, {.tv_sec = 0, .tv_nsec = 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, (dataset / "home-2/d").c_str(), times, 0), 0);
  EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(false, false, true));
}

TEST(HomesPresentTest, WhatTheSystemDoesNotSayIsUnavailable) {
  ThreeHomes dataset;
  dataset.SetRoot(dataset / std::string(300, 'x'));  // longer than a name may be
  const auto index = dataset.Open();
  EXPECT_EQ(HomesPresent(*index, HomesOf(*index).value()).status().code(),
            StatusCode::kUnavailable);
}

TEST(HomesPresentTest, ARootThatIsNoPathIsTheSameOnAllNodes) {
  ThreeHomes dataset;
  dataset.SetRoot("s3://bucket/data");
  const auto index = dataset.Open();
  EXPECT_THAT(HomesPresent(*index, HomesOf(*index).value()).value(), ElementsAre(true, true, true));
}

TEST(HomesPresentTest, OfManyFilesItLooksAtSomeOfEachHome) {
  std::vector<std::string> names;
  for (int file = 0; file < 5000; ++file) names.push_back("home-0/" + std::to_string(file));
  names.push_back("home-1/only");
  Dataset dataset(names);
  dataset.AddField("data", std::vector<std::uint64_t>(1, 0));
  const auto index = dataset.Open();
  const Homes homes = HomesOf(*index).value();
  dataset.Copy(0);
  dataset.Copy(1);
  std::filesystem::remove(dataset / "home-0/1");  // every fifth is looked at: 0, 5, 10, ...
  EXPECT_THAT(HomesPresent(*index, homes).value(), ElementsAre(true, true));
  std::filesystem::remove(dataset / "home-1/only");
  EXPECT_FALSE(HomesPresent(*index, homes).ok());
  dataset.Copy(1);
  std::filesystem::remove(dataset / "home-0/4995");
  EXPECT_FALSE(HomesPresent(*index, homes).ok());
}

}  // namespace
}  // namespace headrace
