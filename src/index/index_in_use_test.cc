// What a copy of the data keeps of an index, and an index whose file changes while it is mapped.

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/index_reader.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

using internal::FileOf;
using internal::SmallContents;
using internal::TestFolder;
using internal::WriteFile;
using testing::HasSubstr;

std::shared_ptr<const Index> OpenFileOf(const IndexContents& contents) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(FileOf(contents));
  return internal::OpenIndexInMemory(*bytes, "/x/a.hri", bytes).value();
}

TEST(IndexContentTest, IsThatOfAllButTheTimesOfChange) {
  IndexContents contents = SmallContents();
  const auto of = [](const IndexContents& each) { return OpenFileOf(each)->Content(); };
  const std::string content = of(contents);
  EXPECT_EQ(content.size(), 32U);
  IndexContents touched = contents;
  for (auto& object : touched.objects) object.mtime_ns += 7;
  EXPECT_EQ(of(touched), content);
  IndexContents larger = contents;
  larger.objects.back().size += 1;
  EXPECT_NE(of(larger), content);
  IndexContents renamed = contents;
  renamed.objects.back().name += 'x';
  EXPECT_NE(of(renamed), content);
}

TEST(IndexContentTest, PiecesCoverSmallDataAndAreSpreadOverLargeData) {
  IndexContents contents = SmallContents();
  std::uint64_t total = 0;
  for (const auto& object : contents.objects) total += object.size;
  const auto index = OpenFileOf(contents);
  const auto bytes_of = [](const std::vector<Extent>& pieces) {
    std::uint64_t bytes = 0;
    for (const Extent& piece : pieces) bytes += piece.range.size;
    return bytes;
  };
  EXPECT_EQ(bytes_of(index->Pieces(4, total, 1)), total) << "parts are no larger than pieces";
  EXPECT_EQ(bytes_of(index->Pieces(total, 1, 1)), total);
  EXPECT_EQ(bytes_of(index->Pieces(2 * total, 1, 1)), total) << "some parts are empty";
  const std::vector<Extent> few = index->Pieces(3, 2, 1);
  EXPECT_EQ(bytes_of(few), 6U);
  EXPECT_EQ(index->Pieces(3, 2, 1), few);
  EXPECT_NE(index->Pieces(3, 2, 2), few);
  for (const Extent& piece : few) {
    EXPECT_LE(piece.range.end(), index->object(piece.object).value().size);
  }
}

class IndexInUseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    IndexContents contents = SmallContents();
    for (int i = 0; i < 2000; ++i) {
      contents.objects.push_back({.name = "file-" + std::to_string(i), .size = 1});
    }
    WriteFile(path_, FileOf(contents));
    contents.objects.pop_back();
    other_ = FileOf(contents);
    index_ = Index::Open(path_).value();
    ASSERT_TRUE(index_->CheckIntact().ok());
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "a.hri";
  std::vector<std::byte> other_;
  std::shared_ptr<const Index> index_;
};

TEST_F(IndexInUseTest, ACutFileIsFoundAndReadsAsZeros) {
  const std::uint64_t bytes = index_->file_bytes();
  ASSERT_GT(bytes, 3U * 4096);
  ASSERT_EQ(::truncate(path_.c_str(), 4096), 0);
  EXPECT_FALSE(index_->object(ObjectId{1999}).ok() && index_->object(ObjectId{1}).ok());
  const Status status = index_->CheckIntact();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path_ + "': the file was cut or written again while it was in use"));
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(bytes)), 0);
  EXPECT_FALSE(index_->CheckIntact().ok());
}

TEST_F(IndexInUseTest, ACutInsideTheLastPageIsFound) {
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(index_->file_bytes() - 64)), 0);
  EXPECT_FALSE(index_->CheckIntact().ok());
}

TEST_F(IndexInUseTest, AnotherIndexInItsPlaceIsFound) {
  WriteFile(path_, other_);
  EXPECT_FALSE(index_->CheckIntact().ok());
}

TEST_F(IndexInUseTest, ARenameDoesNotChangeIt) {
  WriteFile(folder_ / "b.hri", other_);
  std::filesystem::rename(folder_ / "b.hri", path_);
  EXPECT_TRUE(index_->CheckIntact().ok());
  EXPECT_TRUE(index_->VerifyAll().ok());
}

}  // namespace
}  // namespace headrace
