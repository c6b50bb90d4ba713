#include "store/file_mapping.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/memory/guarded_copy.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "gtest/gtest.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPart = 2 * kMiB;
constexpr std::uint64_t kSize = 2 * kPart + 100;

// A file of three parts, of which the page cache holds as much as `cached_` says.
class FileMappingTest : public testing::Test {
 protected:
  void SetUp() override {
    InstallCopyGuard();
    for (std::uint64_t i = 0; i < kSize; ++i) bytes_ += static_cast<char>(i * 7 % 251);
    char name[] = "/tmp/headrace-mapping-XXXXXX";
    file_ = UniqueFd(::mkstemp(name));
    ASSERT_TRUE(file_);
    ASSERT_EQ(::unlink(name), 0);
    ASSERT_EQ(::write(file_.get(), bytes_.data(), kSize), static_cast<ssize_t>(kSize));
    mapping_ = FileMapping::Make(file_.get(), kSize, [this](ByteRange range) {
      looked_.push_back(range);
      return cached_[range.offset / kPart];
    });
    ASSERT_NE(mapping_, nullptr);
  }

  std::string Copied(ByteRange range) const {
    std::vector<std::byte> to(range.size);
    if (!mapping_->Copy(range, to)) return "gone";
    return {reinterpret_cast<const char*>(to.data()), to.size()};
  }

  std::string bytes_;
  UniqueFd file_;
  const std::uint64_t page_ = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t all_ = kPart / page_;
  std::vector<std::uint64_t> cached_ = {all_, all_, 1};  // pages, by part
  std::vector<ByteRange> looked_;
  std::unique_ptr<FileMapping> mapping_;
};

TEST_F(FileMappingTest, CopiesAnyRange) {
  for (const ByteRange range : {ByteRange{0, 1}, ByteRange{4095, 2}, ByteRange{kPart - 3, 5000},
                                ByteRange{kSize - 1, 1}, ByteRange{0, kSize}}) {
    EXPECT_TRUE(mapping_->MayCopy(range, 1));
    mapping_->Prefetch(range);
    EXPECT_EQ(Copied(range), bytes_.substr(range.offset, range.size));
  }
}

TEST_F(FileMappingTest, LooksAtAPartOnceASecondAndAgainWhenThatIsOver) {
  cached_[1] = 0;
  EXPECT_TRUE(mapping_->MayCopy({0, 10}, 5));
  EXPECT_FALSE(mapping_->MayCopy({kPart - 1, 2}, 5));
  EXPECT_FALSE(mapping_->MayCopy({kPart, 1}, 6));
  ASSERT_EQ(looked_.size(), 2);
  EXPECT_EQ(looked_[1].offset, kPart);
  EXPECT_EQ(looked_[1].size, kPart);
  cached_ = {0, all_, 1};
  EXPECT_FALSE(mapping_->MayCopy({0, 10}, 7));
  EXPECT_TRUE(mapping_->MayCopy({kPart, 1}, 7));
  EXPECT_TRUE(mapping_->MayCopy({kSize - 1, 1}, 7));
  EXPECT_EQ(looked_.back().size, 100);
}

TEST_F(FileMappingTest, OfAPartThatIsHeldInPlacesItCopiesThose) {
  constexpr std::uint64_t kBlock = kPart / 32;
  ASSERT_EQ(::fsync(file_.get()), 0);
  ASSERT_EQ(::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM), 0);  // no reading ahead
  std::vector<char> read(kSize);
  for (std::uint64_t at = 0; at < kSize; at += page_) {
    if (at / kBlock != 3) (void)::pread(file_.get(), read.data(), page_, static_cast<off_t>(at));
  }
  cached_[0] = all_ - 1;
  if (!mapping_->MayCopy({0, kBlock}, 5)) GTEST_SKIP() << "the file system kept all in memory";
  EXPECT_TRUE(mapping_->MayCopy({kBlock, 2 * kBlock}, 5));
  EXPECT_FALSE(mapping_->MayCopy({3 * kBlock, 1}, 5));
  EXPECT_FALSE(mapping_->MayCopy({3 * kBlock - 1, 2}, 5));
  EXPECT_FALSE(mapping_->MayCopy({4 * kBlock - 1, 2}, 5));
  EXPECT_TRUE(mapping_->MayCopy({4 * kBlock, kPart - 4 * kBlock}, 5));
  EXPECT_TRUE(mapping_->MayCopy({4 * kBlock, kPart}, 5)) << "into the next part";
}

TEST_F(FileMappingTest, DoesNotBelieveThatAllPagesAreThereIfFewerAreCounted) {
  cached_[0] = all_ - 1;
  EXPECT_FALSE(mapping_->MayCopy({0, 1}, 5));
}

TEST_F(FileMappingTest, SaysWhenTheFileWasCut) {
  ASSERT_EQ(::ftruncate(file_.get(), static_cast<off_t>(kPart)), 0);
  EXPECT_EQ(Copied({kPart, 10}), "gone");
  EXPECT_EQ(Copied({0, 10}), bytes_.substr(0, 10));
}

}  // namespace
}  // namespace headrace
