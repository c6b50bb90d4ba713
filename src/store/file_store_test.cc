// Files that differ from the index, and limits: for every store that reads files.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/file_io.h"
#include "store/file_table.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"
#include "store/thread_file_store.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr ObjectId kFileObject{1};
constexpr std::uint64_t kFileBytes = 20'000;

using Make = std::function<Result<std::unique_ptr<ByteStore>>(const FileCatalog&, Executor&)>;

struct FileStoreCase {
  std::string name;
  bool io_uring;
  Make make;
};

void PrintTo(const FileStoreCase& store, std::ostream* out) { *out << store.name; }

Make Threads(const ThreadFileStoreOptions& options) {
  return [options](const FileCatalog& files, Executor& executor) {
    return Result<std::unique_ptr<ByteStore>>(
        std::make_unique<ThreadFileStore>(files, executor, options));
  };
}

Make Uring(const UringFileStoreOptions& options) {
  return [options](const FileCatalog& files,
                   Executor& executor) -> Result<std::unique_ptr<ByteStore>> {
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<ByteStore> store,
                              UringFileStore::Open(files, executor, options));
    return store;
  };
}

// Runs `body` in a separate process, as it may damage this one; true if it returned true.
bool TrueInChild(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int state = 0;
  EXPECT_EQ(::waitpid(child, &state, 0), child);
  return WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

class FileStoreTest : public testing::TestWithParam<FileStoreCase> {
 protected:
  void SetUp() override {
    if (const Status status = UringFileStore::Probe(); GetParam().io_uring && !status.ok()) {
      GTEST_SKIP() << status.ToString();
    }
    files_.Add(kFileObject, RandomBytes(7, kFileBytes));
  }

  // Made at its first use: tests that fork need a process without threads.
  ByteStore& store() {
    if (store_ == nullptr) {
      executor_.emplace(2);
      store_ = GetParam().make(files_, *executor_).value();
    }
    return *store_;
  }

  ReadAnswer ReadOne(ByteRange range, ObjectId object = kFileObject) {
    return ReadAll(store(), {{object, range}}).front();
  }

  [[nodiscard]] std::string Reading(const std::string& range, ObjectId object = kFileObject) const {
    return "reading " + files_.path(object) + " bytes " + range + ": ";
  }

  TempFiles files_;
  std::optional<TestExecutor> executor_;
  std::unique_ptr<ByteStore> store_;
};

TEST_P(FileStoreTest, AFileOfAnotherSizeThanIndexedIsRefusedWithBothSizes) {
  WriteFile(files_.path(kFileObject), RandomBytes(7, kFileBytes + 1));
  for (const ByteRange range : {ByteRange{0, kFileBytes}, ByteRange{8, 4}}) {
    const ReadAnswer answer = ReadOne(range);
    EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(
        answer.status.message(),
        Reading("[" + std::to_string(range.offset) + ", " + std::to_string(range.end()) + ")") +
            "file changed since it was indexed: size in bytes was 20000, is 20001; index "
            "the dataset again");
  }
}

TEST_P(FileStoreTest, AFileOfAnotherTimeThanIndexedIsRefusedWithBothTimes) {
  FileInfo info = files_.file(kFileObject).value();
  const std::string now = std::to_string(info.mtime_ns);
  info.mtime_ns -= 1;
  const std::string before = std::to_string(info.mtime_ns);
  files_.Enter(kFileObject, info);
  const ReadAnswer answer = ReadOne({8, 4});
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status.message(),
            Reading("[8, 12)") + "file changed since it was indexed: time of change in ns was " +
                before + ", is " + now + "; index the dataset again");
}

TEST_P(FileStoreTest, ATimeThatIsNotKnownIsNotCompared) {
  FileInfo info = files_.file(kFileObject).value();
  info.mtime_ns = 0;
  files_.Enter(kFileObject, info);
  EXPECT_EQ(ReadOne({8, 4}).bytes, RandomBytes(7, kFileBytes).substr(8, 4));
}

TEST_P(FileStoreTest, AFileThatIsGoneIsNotFound) {
  std::filesystem::remove(files_.path(kFileObject));
  const ReadAnswer answer = ReadOne({0, kFileBytes});
  EXPECT_EQ(answer.status.code(), StatusCode::kNotFound);
  EXPECT_EQ(answer.status.message(),
            Reading("[0, 20000)") + "no such file; put it back, or index the dataset again");
  std::filesystem::create_symlink("/nowhere/it", files_.path(kFileObject));
  EXPECT_EQ(
      ReadOne({0, kFileBytes}).status.message(),
      Reading("[0, 20000)") +
          "a link to /nowhere/it, which is not there; put it back, or index the dataset again and "
          "leave this file out with skip=");
}

TEST_P(FileStoreTest, WhatErrorsAdviseIsTheCataloguesWord) {
  files_.Advise({.changed = "copy it again", .broken_link = "mend it", .special = "move it"});
  const auto told = [this] { return std::string(ReadOne({0, kFileBytes}).status.message()); };
  WriteFile(files_.path(kFileObject), RandomBytes(7, kFileBytes + 1));
  EXPECT_THAT(told(), EndsWith("was 20000, is 20001; copy it again"));
  std::filesystem::remove(files_.path(kFileObject));
  EXPECT_THAT(told(), EndsWith("no such file; put it back, or copy it again"));
  std::filesystem::create_symlink("/nowhere/it", files_.path(kFileObject));
  EXPECT_THAT(told(), EndsWith("which is not there; put it back, or mend it"));
  std::filesystem::remove(files_.path(kFileObject));
  std::filesystem::create_directory(files_.path(kFileObject));
  EXPECT_THAT(told(), EndsWith("a directory; move it"));
}

TEST_P(FileStoreTest, AnObjectIsCheckedWithoutReadingItOpenOrNot) {
  EXPECT_TRUE(store().CheckObject(kFileObject).ok());
  EXPECT_EQ(store().CheckObject(ObjectId{99}).message(), "opening object 99: no such object");
  EXPECT_TRUE(ReadOne({8, 4}).status.ok());  // Open from here on.
  const std::uint64_t reads = store().stats().reads;
  EXPECT_TRUE(store().CheckObject(kFileObject).ok());
  ASSERT_EQ(::truncate(files_.path(kFileObject).c_str(), 5000), 0);
  const Status status = store().CheckObject(kFileObject);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "opening " + files_.path(kFileObject) +
                                  ": file changed since it was indexed: size in bytes was 20000, "
                                  "is 5000; index the dataset again");
  EXPECT_EQ(store().stats().reads, reads);
}

TEST_P(FileStoreTest, AFileThatIsWrittenAgainWhileItIsOpenIsFoundAtTheCheckAndNotReadAgain) {
  EXPECT_FALSE(store().HasOpen());
  EXPECT_TRUE(ReadOne({8, 4}).status.ok());
  EXPECT_TRUE(store().HasOpen());
  EXPECT_TRUE(store().CheckOpen().ok());
  const std::vector<timespec> times = {{.tv_sec = 7, .tv_nsec = 0}, {.tv_sec = 8, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, files_.path(kFileObject).c_str(), times.data(), 0), 0);
  EXPECT_TRUE(ReadOne({8, 4}).status.ok()) << "it was looked at a moment ago";
  const Status status = store().CheckOpen();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("reading " + files_.path(kFileObject) +
                                  ": file changed since it was indexed: time of change in ns"));
  EXPECT_TRUE(store().CheckOpen().ok()) << "it was reported, and is not open any more";
  EXPECT_EQ(ReadOne({8, 4}).status.code(), StatusCode::kFailedPrecondition);
}

TEST_P(FileStoreTest, AFileThatShrinksWhileItIsOpenIsRefused) {
  EXPECT_TRUE(ReadOne({8, 4}).status.ok());
  ASSERT_EQ(::truncate(files_.path(kFileObject).c_str(), 5000), 0);
  // The last one loses fewer bytes than a direct read adds at its front.
  for (const ByteRange range :
       {ByteRange{4000, 2000}, ByteRange{10'000, 10}, ByteRange{4990, 20}}) {
    const ReadAnswer answer = ReadOne(range);
    EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition) << answer.status.ToString();
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr("was 20000, is 5000; index"));
  }
}

// Files of sysfs have the size of a page, but less data.
TEST_P(FileStoreTest, AFileWithFewerBytesThanItSaysIsDataLoss) {
  const std::string path = "/sys/kernel/mm/transparent_hugepage/enabled";
  struct stat stat = {};
  if (::stat(path.c_str(), &stat) != 0) GTEST_SKIP() << "no " << path;
  files_.Enter(kFileObject, {path, static_cast<std::uint64_t>(stat.st_size), 0});
  const ReadAnswer answer = ReadOne({0, static_cast<std::uint64_t>(stat.st_size)});
  EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss) << answer.status.ToString();
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr(" missing at the end, though"));
}

TEST_P(FileStoreTest, ADirectoryInThePlaceOfAFileIsRefused) {
  std::filesystem::remove(files_.path(kFileObject));
  std::filesystem::create_directory(files_.path(kFileObject));
  const ReadAnswer answer = ReadOne({0, kFileBytes});
  EXPECT_EQ(answer.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(answer.status.message(),
            Reading("[0, 20000)") +
                "a directory; index the dataset again and leave this file out with skip=");
}

TEST_P(FileStoreTest, APipeInThePlaceOfAFileIsRefusedAndNotWaitedFor) {
  std::filesystem::remove(files_.path(kFileObject));
  ASSERT_EQ(::mkfifo(files_.path(kFileObject).c_str(), 0600), 0);
  EXPECT_EQ(ReadOne({0, kFileBytes}).status.code(), StatusCode::kFailedPrecondition);
}

TEST_P(FileStoreTest, AFileThatMayNotBeReadIsRefused) {
  ASSERT_EQ(::chmod(files_.path(kFileObject).c_str(), 0), 0);
  ASSERT_EQ(::chmod(files_.folder().c_str(), 0755), 0);
  EXPECT_TRUE(TrueInChild([this] {
    const uid_t nobody = 65534;
    if (::geteuid() == 0 && (::setgid(nobody) != 0 || ::setuid(nobody) != 0)) return false;
    const ReadAnswer answer = ReadAll(store(), {{kFileObject, {0, kFileBytes}}}).front();
    const bool as_promised =
        answer.status.code() == StatusCode::kFailedPrecondition &&
        answer.status.message() ==
            Reading("[0, 20000)") + "open: Permission denied for user " +
                std::to_string(::geteuid()) +
                ": find the file or folder that refuses with `namei -l PATH`, and chmod it";
    if (!as_promised) std::cerr << answer.status.ToString() << "\n";
    return as_promised;
  }));
}

TEST_P(FileStoreTest, OutOfDescriptorsIsResourceExhaustedAndTellsTheLimit) {
  EXPECT_TRUE(TrueInChild([this] {
    ByteStore& reader = store();    // io_uring itself takes descriptors.
    (void)ErrnoStatus(EMFILE, "");  // So does UBSan, when it first sees a type.
    const int lowest_free = ::dup(0);
    const struct rlimit limit = {static_cast<rlim_t>(lowest_free),
                                 static_cast<rlim_t>(lowest_free)};
    ::close(lowest_free);
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    const ReadAnswer answer = ReadAll(reader, {{kFileObject, {8, 4}}}).front();
    const bool as_promised =
        answer.status.code() == StatusCode::kResourceExhausted &&
        answer.status.message() ==
            Reading("[8, 12)") + "open: Too many open files; raise the limit (ulimit -n)";
    if (!as_promised) std::cerr << answer.status.ToString() << "\n";
    return as_promised;
  }));
}

TEST_P(FileStoreTest, ManyFilesAreReadWithFewDescriptors) {
  std::vector<Extent> extents;
  for (std::uint64_t i = 10; i < 110; ++i) {
    files_.Add(ObjectId{i}, RandomBytes(i, 6000));
    extents.push_back({ObjectId{i}, {i, 5000}});
  }
  for (int round = 0; round < 2; ++round) {
    const std::vector<ReadAnswer> answers = ReadAll(store(), extents);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::uint64_t object = Raw(extents[i].object);
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.ToString();
      EXPECT_TRUE(answers[i].bytes == RandomBytes(object, 6000).substr(object, 5000));
    }
  }
}

std::string FileStoreCaseName(const testing::TestParamInfo<FileStoreCase>& made) {
  return made.param.name;
}

// Few descriptors, so that every test that reads many files closes some.
INSTANTIATE_TEST_SUITE_P(
    Stores, FileStoreTest,
    testing::Values(
        FileStoreCase{"Threads", false, Threads({.descriptors_max = 4})},
        FileStoreCase{"ThreadsDirect", false,
                      Threads({.direct = true, .page_cache = false, .descriptors_max = 4})},
        FileStoreCase{"UringDirect", true, Uring({.page_cache = false, .descriptors_max = 4})},
        FileStoreCase{"UringBuffered", true, Uring({.direct = false, .descriptors_max = 4})}),
    FileStoreCaseName);

TEST(FileTableTest, KeepsNoMoreFilesThanAskedAndTheLatestUsed) {
  TempFiles files;
  for (std::uint64_t i = 0; i < 5; ++i) files.Add(ObjectId{i}, RandomBytes(i, 100));
  FileTable table(files, {.descriptors_max = 2});
  const auto descriptor = [&table](std::uint64_t i) {
    return table.Open({ObjectId{i}, {0, 10}}).value().get();
  };
  const OpenFile* const first = descriptor(0);
  descriptor(1);
  EXPECT_EQ(descriptor(0), first);  // Now 1 is the least recently used.
  descriptor(2);
  EXPECT_EQ(table.open_files(), 2U);
  std::filesystem::remove(files.path(ObjectId{0}));
  std::filesystem::remove(files.path(ObjectId{1}));
  EXPECT_TRUE(table.Open({ObjectId{0}, {0, 10}}).ok());
  EXPECT_FALSE(table.Open({ObjectId{1}, {0, 10}}).ok());
}

TEST(FileTableTest, AFileThatChangedBeforeItWasClosedIsReportedToo) {
  TempFiles files;
  for (std::uint64_t i = 1; i <= 3; ++i) files.Add(ObjectId{i}, RandomBytes(i, 100));
  FileTable table(files, {.descriptors_max = 1});
  EXPECT_TRUE(table.Open({ObjectId{1}, {0, 10}}).ok());
  ASSERT_EQ(::truncate(files.path(ObjectId{1}).c_str(), 50), 0);
  EXPECT_TRUE(table.Open({ObjectId{2}, {0, 10}}).ok());
  EXPECT_TRUE(table.Open({ObjectId{3}, {0, 10}}).ok());
  EXPECT_EQ(table.open_files(), 1U);
  EXPECT_THAT(std::string(table.CheckOpen().message()), HasSubstr(files.path(ObjectId{1})));
  EXPECT_TRUE(table.CheckOpen().ok());
}

TEST(FileTableTest, AFileIsDueForACheckSomeSecondsAfterTheLast) {
  TempFiles files;
  files.Add(ObjectId{1}, RandomBytes(1, 100));
  FileTable table(files, {});
  const std::shared_ptr<OpenFile> file = table.Open({ObjectId{1}, {0, 10}}).value();
  const std::uint32_t now_s = CoarseSeconds() + 100;
  EXPECT_TRUE(file->IsCheckDue(now_s));
  EXPECT_FALSE(file->IsCheckDue(now_s));
  EXPECT_FALSE(file->IsCheckDue(now_s + kCheckEveryS - 1));
  EXPECT_TRUE(file->IsCheckDue(now_s + kCheckEveryS));
}

TEST(FileTableTest, NeverClosesAFileInUse) {
  TempFiles files;
  for (std::uint64_t i = 0; i < 5; ++i) files.Add(ObjectId{i}, RandomBytes(i, 100));
  FileTable table(files, {.descriptors_max = 2});
  std::vector<std::shared_ptr<OpenFile>> used;
  for (std::uint64_t i = 0; i < 5; ++i) {
    used.push_back(table.Open({ObjectId{i}, {0, 10}}).value());
  }
  EXPECT_EQ(table.open_files(), 2U);
  EXPECT_EQ(table.Open({ObjectId{0}, {0, 10}}).value(), used[0]);  // Not forgotten for a later one.
  for (std::uint64_t i = 0; i < 5; ++i) {
    std::string bytes(100, '\0');
    EXPECT_EQ(::pread(used[i]->fd(), bytes.data(), bytes.size(), 0), 100);
    EXPECT_EQ(bytes, RandomBytes(i, 100));
  }
}

TEST(FileTableTest, WholeFilesAreNotKeptOpen) {
  TempFiles files;
  files.Add(kFileObject, RandomBytes(1, 100));
  FileTable table(files, {});
  EXPECT_TRUE(table.Open({kFileObject, {0, 100}}).ok());
  EXPECT_EQ(table.open_files(), 0U);
}

TEST(FileTableTest, TablesInUseTogetherKeepNoMoreThanAQuarterOfTheDescriptors) {
  TempFiles files;
  for (std::uint64_t i = 0; i < 16; ++i) files.Add(ObjectId{i}, RandomBytes(i, 100));
  for (const bool direct : {false, true}) {
    EXPECT_TRUE(TrueInChild([&] {
      const struct rlimit limit = {64, 64};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
      const auto fill = [](FileTable& table) {
        for (std::uint64_t i = 0; i < 16; ++i) {
          if (!table.Open({ObjectId{i}, {0, 10}}).ok()) return false;
        }
        return true;
      };
      std::optional<FileTable> first(std::in_place, files, FileTableOptions{.direct = direct});
      FileTable second(files, {.direct = direct});
      const std::size_t all = direct ? 8 : 16;
      if (!fill(*first) || first->open_files() != all / 2 || !fill(second)) return false;
      if (second.open_files() != all / 2) return false;
      std::optional<FileTable> third(std::in_place, files, FileTableOptions{.direct = direct});
      // The older tables close files at their next use.
      if (!fill(*third) || !fill(*first) || !second.Open({ObjectId{15}, {0, 10}}).ok()) {
        return false;
      }
      if (first->open_files() + second.open_files() + third->open_files() > all ||
          third->open_files() < all / 4) {
        return false;
      }
      third.reset();
      first.reset();
      return fill(second) && second.open_files() == all;
    }));
  }
}

TEST(FileTableTest, OutOfDescriptorsItClosesThoseThatNobodyUses) {
  TempFiles files;
  for (std::uint64_t i = 0; i < 3; ++i) files.Add(ObjectId{i}, RandomBytes(i, 100));
  EXPECT_TRUE(TrueInChild([&files] {
    FileTable table(files, {});
    const int lowest_free = ::dup(0);
    ::close(lowest_free);
    const struct rlimit limit = {static_cast<rlim_t>(lowest_free + 1),
                                 static_cast<rlim_t>(lowest_free + 1)};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (!table.Open({ObjectId{i}, {0, 10}}).ok()) return false;
    }
    return table.open_files() == 1;
  }));
}

TEST(ReadAtTest, WhatTheFileSystemRefusesIsTold) {
  const UniqueFd file(memfd_create("file", MFD_CLOEXEC));
  std::byte byte{};
  EXPECT_EQ(ReadAt(file.get(), {&byte, 1}, std::uint64_t{1} << 63, 1).status().ToString(),
            "InvalidArgument: pread: the file system refuses this offset, size or buffer (EINVAL); "
            "copy the data to another file system");
  EXPECT_EQ(ReadAt(-1, {&byte, 1}, 0, 1).status().ToString(),
            "FailedPrecondition: pread: Bad file descriptor");
}

}  // namespace
}  // namespace headrace
