#include "index/folder/file_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/testing/test_executor.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/test_contents.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::Each;

class FileStatusTest : public testing::Test {
 protected:
  void Write(const std::string& name, std::size_t size) {
    internal::WriteFile(folder_ / name, std::vector<std::byte>(size));
  }
  [[nodiscard]] UniqueFd Opened() const {
    return UniqueFd(open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  internal::TestFolder folder_;
};

TEST_F(FileStatusTest, SizesAndTimesAreThoseOfTheSystem) {
  Write("a", 3);
  fs::create_symlink("a", folder_ / "link");
  struct stat info = {};
  ASSERT_EQ(stat((folder_ / "a").c_str(), &info), 0);
  const UniqueFd folder = Opened();
  for (const char* name : {"a", "link"}) {
    const FileStatus found = StatusOf(folder.get(), name);
    EXPECT_EQ(found.type, FileType::kRegular);
    EXPECT_EQ(found.size, 3);
    EXPECT_EQ(found.mtime_ns, info.st_mtim.tv_sec * kNsPerSecond + info.st_mtim.tv_nsec);
  }
}

TEST_F(FileStatusTest, WhatIsNoRegularFileSaysWhy) {
  fs::create_directory(folder_ / "folder");
  fs::create_symlink("nothing", folder_ / "broken");
  fs::create_symlink("loop", folder_ / "loop");
  const UniqueFd folder = Opened();
  EXPECT_EQ(StatusOf(folder.get(), "folder").type, FileType::kOther);
  EXPECT_EQ(StatusOf(folder.get(), "broken").type, FileType::kMissing);
  EXPECT_EQ(StatusOf(folder.get(), "loop").type, FileType::kMissing);
  EXPECT_EQ(StatusOf(folder.get(), "no").type, FileType::kMissing);
  EXPECT_EQ(StatusOf(folder.get(), std::string(5000, 'x').c_str()).type, FileType::kUnreadable);
}

TEST_F(FileStatusTest, ThreadsGiveWhatOneGives) {
  Write("a", 1);
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) names.emplace_back(i % 3 == 0 ? "a" : "no");
  const UniqueFd folder = Opened();
  TestExecutor executor(3);
  const std::vector<FileStatus> found = StatusOfAll(folder.get(), names, &executor);
  ASSERT_EQ(found.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(found[i].type, i % 3 == 0 ? FileType::kRegular : FileType::kMissing);
  }
  EXPECT_EQ(StatusOfAll(folder.get(), names, nullptr).size(), names.size());
  EXPECT_TRUE(StatusOfAll(folder.get(), {}, &executor).empty());
}

TEST_F(FileStatusTest, EveryThreadGetsWork) {
  class Counting final : public Executor {
   public:
    void Submit(std::uint64_t deadline, Task task) override {
      ++submitted;
      inner.Submit(deadline, std::move(task));
    }
    [[nodiscard]] int concurrency() const override { return inner.concurrency(); }

    std::atomic<int> submitted = 0;
    TestExecutor inner{4};
  };
  Counting executor;
  const UniqueFd folder = Opened();
  EXPECT_THAT(StatusOfAll(folder.get(), std::vector<std::string>(1024, "no"), &executor),
              Each(testing::Field(&FileStatus::type, FileType::kMissing)));
  EXPECT_EQ(executor.submitted, 4);
}

}  // namespace
}  // namespace headrace
