#include "loader/session/open_store.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/index_writer.h"
#include "index/test_contents.h"
#include "loader/config/loader_config.h"
#include "loader/session/session.h"
#include "store/memory_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

constexpr ObjectId kObject{1};

std::unique_ptr<MemoryStore> Memory(const std::string& bytes) {
  return std::make_unique<MemoryStore>(std::unordered_map<ObjectId, std::string>{{kObject, bytes}});
}

TEST(ReadExtentsTest, ExtentsLandOneAfterTheOtherAlsoLargeAndEmptyOnes) {
  const std::string bytes = RandomBytes(3, 9 * kMiB + 5);
  const auto store = Memory(bytes);
  const std::vector<Extent> extents = {{kObject, {bytes.size() - 1, 1}},
                                       {kObject, {0, bytes.size()}},
                                       {kObject, {5, 0}},
                                       {kObject, {7, 3}}};
  std::string read(bytes.size() + 4, '\0');
  ASSERT_TRUE(ReadExtents(*store, extents, std::as_writable_bytes(std::span(read))).ok());
  EXPECT_TRUE(read == bytes.substr(bytes.size() - 1) + bytes + bytes.substr(7, 3));
}

TEST(ReadExtentsTest, TheErrorOfAReadIsTheAnswer) {
  const auto store = Memory("0123456789");
  std::string read(8, '\0');
  const std::vector<Extent> extents = {{kObject, {0, 4}}, {kObject, {8, 4}}};
  const Status status = ReadExtents(*store, extents, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "reading object 1 bytes [8, 12): object has 10 bytes");
}

TEST(ReadExtentsTest, StopsWithoutWaitingForReadsAndTouchesNothingLater) {
  GatedStore store(Memory("0123456789"));
  std::string read(10, 'x');
  const std::vector<Extent> extents = {{kObject, {0, 10}}};
  const Status status =
      ReadExtents(store, extents, std::as_writable_bytes(std::span(read)), [] { return false; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(store.waiting(), extents);
  store.ReleaseAll();
  EXPECT_EQ(read, "xxxxxxxxxx");
}

TEST(ReadExtentsTest, IsStoppedAlsoWhileAnswersComeAtOnce) {
  const auto store = Memory("0123456789");
  const std::vector<Extent> extents(2'000'000, {kObject, {0, 1}});
  std::string read(extents.size(), 'x');
  const Status status =
      ReadExtents(*store, extents, std::as_writable_bytes(std::span(read)), [] { return false; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(read.back(), 'x');
}

// An index of two files of 4 bytes, none of which is there.
std::shared_ptr<const Index> Missing(const internal::TestFolder& folder, const std::string& first,
                                     const std::string& second, const std::string& root = "") {
  IndexContents contents;
  contents.sample_count = 2;
  contents.root = root.empty() ? std::string(folder.path()) : root;
  contents.objects = {{.name = first, .size = 4}, {.name = second, .size = 4}};
  contents.fields.push_back({.info = {.name = "data"}});
  contents.fields.back().extents = {internal::MakeExtent(0, 0, 4), internal::MakeExtent(1, 0, 4)};
  EXPECT_TRUE(WriteIndex(contents, folder / "index").ok());
  return Index::Open(folder / "index").value();
}

Status ErrorOf(const std::shared_ptr<const Index>& index, std::uint64_t sample,
               const std::string& io) {
  const OpenedStore opened = OpenStore(index, {.io = io}).value();
  return ReadWhole(opened.store(), index->extent(0, SampleId{sample}).value()).status();
}

TEST(OpenStoreTest, AnObjectOfAnotherSchemeHasNoFolderThatCouldBeMissingHere) {
  const internal::TestFolder folder;
  const auto index = Missing(folder, "home-0/a", "home-1/b", "s3://bucket/data");
  EXPECT_EQ(IndexCatalog(index, {}).RemedyOfMissing("s3://bucket/data/home-1/b"),
            "put it back, or index the dataset again");
}

TEST(OpenStoreTest, AFileAtAHomeThatIsNotHereIsToldWithItsHome) {
  const internal::TestFolder folder;
  const auto index = Missing(folder, "home-0/a", "home-1/b");
  std::filesystem::create_directory(folder / "home-0");
  for (const std::string io : {"auto", "threads"}) {
    const Status away = ErrorOf(index, 1, io);
    EXPECT_EQ(away.code(), StatusCode::kNotFound);
    EXPECT_EQ(
        away.message(),
        "reading " + (folder / "home-1/b") +
            " bytes [0, 4): no such file; home 1 of 2 is not on this node: " + (folder / "home-1") +
            " is not here; copy it, or run on 2 nodes, each with its home, and order epoch with "
            "homes=2 (`headrace docs nodes`)");
    const Status gone = ErrorOf(index, 0, io);
    EXPECT_EQ(gone.code(), StatusCode::kNotFound);
    EXPECT_THAT(gone.message(), testing::EndsWith("no such file; put it back, or index the "
                                                  "dataset again"));
  }
}

TEST(OpenStoreTest, WithoutHomesAMissingFileIsAMissingFile) {
  const internal::TestFolder folder;
  const Status gone = ErrorOf(Missing(folder, "home-0/a", "b"), 0, "threads");
  EXPECT_EQ(gone.code(), StatusCode::kNotFound);
  EXPECT_THAT(gone.message(), testing::EndsWith("no such file; put it back, or index the dataset "
                                                "again"));
}

// Of an order whose nodes read each its own home.
TEST(OpenStoreTest, AHomeThatIsNotAtItsNodeIsToldBeforeARun) {
  const internal::TestFolder folder;
  const auto index = Missing(folder, "home-0/a", "home-1/b");
  std::filesystem::create_directory(folder / "home-0");
  LoaderOptions options;
  options.job = {.batch_size = 1, .world_size = 2, .rank = 1};
  options.order = {.name = "epoch", .parameters = {{"homes", std::int64_t{2}}}};
  options.nodes = PeerListen{};
  auto config = ResolveConfig(index, options);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(Session::Open(index, std::move(config).value()).status().ToString(),
            "FailedPrecondition: reading home 1 of 2 of a dataset: folder " + (folder / "home-1") +
                " is not here, and this is node 1, which alone reads it; copy it here, or start "
                "the nodes in the order of their homes");
}

}  // namespace
}  // namespace headrace
