#include "store/uring_file_store.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

// The children fork from a process with threads, and make none.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): TSan's name
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr ObjectId kUringObject{1};
constexpr std::size_t kUringBytes = 2'000'000;

// Exit status of `body`, run in a process of its own that is killed if it hangs.
int ExitCodeOfChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(body());
  }
  int state = 0;
  EXPECT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state)) << "signal " << WTERMSIG(state);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

// Takes a file out of the page cache.
void Evict(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::fsync(fd), 0);
  EXPECT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(fd);
}

// Residency of the first kUringBytes bytes of a file. Checking does not change it.
std::ptrdiff_t PagesCached(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const map = ::mmap(nullptr, kUringBytes, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  EXPECT_NE(map, MAP_FAILED);
  std::vector<unsigned char> pages(kUringBytes / static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) +
                                   1);
  EXPECT_EQ(::mincore(map, kUringBytes, pages.data()), 0);
  ::munmap(map, kUringBytes);
  return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
}

// From here on io_uring_setup fails with `error` in this process, as in a container.
bool ForbidIoUring(std::uint32_t error) {
  const std::uint32_t number_at = offsetof(struct seccomp_data, nr);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number_at),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

void ExpectProbe(std::uint32_t error, StatusCode code, const std::string& message) {
  constexpr int kNoSeccomp = 77;
  const int result = ExitCodeOfChild([&] {
    if (!ForbidIoUring(error)) return kNoSeccomp;
    const Status status = UringFileStore::Probe();
    TempFiles files;
    TestExecutor executor(1);
    const Status open = UringFileStore::Open(files, executor).status();
    const bool same = open.code() == status.code() && open.message() == status.message();
    const bool right = status.code() == code && status.message() == message;
    if (!same || !right) std::cerr << status.ToString() << "\n" << open.ToString() << "\n";
    return same && right ? 0 : 1;
  });
  if (result == kNoSeccomp) GTEST_SKIP() << "seccomp filters cannot be installed here";
  EXPECT_EQ(result, 0);
}

TEST(UringProbeTest, ForbiddenByAContainerSaysSo) {
  ExpectProbe(EPERM, StatusCode::kFailedPrecondition,
              "io_uring: EPERM: forbidden here, by the container's seccomp profile or by sysctl "
              "kernel.io_uring_disabled; allow it, or read without it");
}

TEST(UringProbeTest, AKernelWithoutItSaysSo) {
  ExpectProbe(ENOSYS, StatusCode::kFailedPrecondition,
              "io_uring: ENOSYS: not in this kernel; read without it");
}

TEST(UringProbeTest, OutOfLockedMemorySaysSo) {
  ExpectProbe(ENOMEM, StatusCode::kResourceExhausted,
              "io_uring: ENOMEM: no memory for a ring; raise the limit of locked memory "
              "(ulimit -l)");
}

class UringFileStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = UringFileStore::Probe(); !status.ok()) {
      GTEST_SKIP() << status.ToString();
    }
    bytes_ = RandomBytes(3, kUringBytes);
    files_.Add(kUringObject, bytes_);
  }

  std::unique_ptr<UringFileStore> Open(UringFileStoreOptions options = {}) {
    return UringFileStore::Open(files_, executor_, std::move(options)).value();
  }

  void ExpectBytes(ByteStore& store, ByteRange range) {
    const ReadAnswer answer = ReadAll(store, {{kUringObject, range}}).front();
    ASSERT_TRUE(answer.status.ok()) << answer.status.ToString();
    EXPECT_TRUE(answer.bytes == bytes_.substr(range.offset, range.size));
  }

  TempFiles files_;
  TestExecutor executor_{1};
  std::string bytes_;
};

TEST_F(UringFileStoreTest, QueueDepthIsChecked) {
  for (const int depth : {-1, 0, 4097}) {
    const Status status = UringFileStore::Open(files_, executor_, {.queue_depth = depth}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "io_uring queue_depth: got " + std::to_string(depth) + ", must be in [1, 4096]");
  }
}

TEST_F(UringFileStoreTest, StatsSayWhyThisStoreWasChosen) {
  const auto store = Open({.note = "asked for"});
  EXPECT_EQ(store->stats().name, "io_uring");
  EXPECT_EQ(store->stats().note, "asked for");
}

TEST_F(UringFileStoreTest, DirectReadsAreCountedWithTheirWidening) {
  const auto store = Open({.page_cache = false, .direct_alignment = 4096});
  ExpectBytes(*store, {4097, 4096});
  EXPECT_EQ(store->stats().bytes, 4096U);
  EXPECT_EQ(store->stats().bytes_direct, 8192U);
  EXPECT_EQ(store->stats().bytes_page_cache, 0U);
}

TEST_F(UringFileStoreTest, RangesThatThePageCacheHoldsAreTakenFromIt) {
  const auto store = Open();  // The file was just written: all of it is cached.
  ExpectBytes(*store, {4097, 4096});
  EXPECT_EQ(store->stats().bytes_page_cache, 4096U);
  EXPECT_EQ(store->stats().bytes_direct, 0U);
}

// Whether the system says what the page cache holds.
bool CanLook() {
  constexpr long kCacheStat = 451;
  return ::syscall(kCacheStat, -1, nullptr, nullptr, 0) == 0 || errno != ENOSYS;
}

TEST_F(UringFileStoreTest, LookingIntoThePageCacheDoesNotFillIt) {
  if (!CanLook()) GTEST_SKIP() << "looks by reading: cachestat needs Linux 6.5";
  const std::string path = files_.file(kUringObject).value().path;
  Evict(path);
  if (PagesCached(path) != 0) GTEST_SKIP() << "the file system keeps its pages";
  const auto store = Open();
  for (std::uint64_t i = 0; i < 8; ++i) ExpectBytes(*store, {i * 100'000, 50'000});
  EXPECT_EQ(PagesCached(path), 0);
  EXPECT_EQ(store->stats().bytes_page_cache, 0U);
}

TEST_F(UringFileStoreTest, ReadNowGivesWhatThePageCacheHolds) {
  const auto store = Open();
  std::string got(4096, '\0');
  EXPECT_TRUE(store->MayReadNow());
  EXPECT_EQ(store->ReadNow({kUringObject, {4097, 4096}}, std::as_writable_bytes(std::span(got))),
            ReadNowAnswer::kNotAsked)
      << "the file is not open, and to open it may wait for storage";
  ExpectBytes(*store, {0, 4096});
  ASSERT_EQ(store->ReadNow({kUringObject, {4097, 4096}}, std::as_writable_bytes(std::span(got))),
            ReadNowAnswer::kRead);
  EXPECT_TRUE(got == bytes_.substr(4097, 4096));
  EXPECT_EQ(store->stats().reads, 2U);
  EXPECT_EQ(store->stats().bytes, 2 * 4096U);
  EXPECT_EQ(store->stats().bytes_page_cache, 2 * 4096U);
}

TEST_F(UringFileStoreTest, ReadAllNowGivesWhatThePageCacheHoldsAndHoldsNowSaysSo) {
  const auto store = Open();
  EXPECT_FALSE(store->HoldsNow({kUringObject, {0, 4096}})) << "the file is not open";
  ExpectBytes(*store, {0, 4096});
  std::vector<std::string> got(3, std::string(4096, '\0'));
  std::vector<NowRead> reads;
  for (std::string& each : got) {
    reads.push_back({.extent = {kUringObject, {5000 * (reads.size() + 1), 4096}},
                     .dst = std::as_writable_bytes(std::span(each))});
  }
  reads[1].extent.range.offset = bytes_.size() - 4000;
  store->ReadAllNow(reads);
  EXPECT_EQ(reads[0].answer, ReadNowAnswer::kRead);
  EXPECT_EQ(reads[1].answer, ReadNowAnswer::kNotAsked) << "it ends behind the file";
  EXPECT_EQ(reads[2].answer, ReadNowAnswer::kRead);
  EXPECT_TRUE(got[0] == bytes_.substr(5000, 4096));
  EXPECT_TRUE(got[2] == bytes_.substr(15'000, 4096));
  EXPECT_EQ(store->stats().bytes_page_cache, 3 * 4096U);
  if (!CanLook())
    GTEST_SKIP() << "the system does not say what it holds: cachestat needs Linux 6.5";
  EXPECT_TRUE(store->HoldsNow({kUringObject, {5000, 4096}}));
}

TEST_F(UringFileStoreTest, AFileThatWasCutInsideAPageIsNotReadAtOnce) {
  const auto store = Open();
  ExpectBytes(*store, {0, 4096});
  const std::string path = files_.file(kUringObject).value().path;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(bytes_.size() - 10)), 0);
  std::string got(100, '\0');
  std::vector<NowRead> reads = {{.extent = {kUringObject, {bytes_.size() - 100, 100}},
                                 .dst = std::as_writable_bytes(std::span(got))}};
  store->ReadAllNow(reads);
  EXPECT_EQ(reads[0].answer, ReadNowAnswer::kNotHeld);
}

TEST_F(UringFileStoreTest, ReadNowIsNotForAFileThatIsGoneNorForStoresThatDoNotAsk) {
  EXPECT_FALSE(Open({.page_cache = false})->MayReadNow());
  EXPECT_FALSE(Open({.page_cache = false})->HoldsNow({kUringObject, {0, 4096}}));
  const auto asking = Open();
  std::string got(10, '\0');
  EXPECT_EQ(asking->ReadNow({ObjectId{99}, {0, 10}}, std::as_writable_bytes(std::span(got))),
            ReadNowAnswer::kNotAsked);
  EXPECT_EQ(asking->stats().reads, 0U);
}

TEST_F(UringFileStoreTest, AFileSystemThatRefusesDirectReadsIsReadThroughThePageCache) {
  const auto store = Open({.page_cache = false, .direct_alignment = 1});  // Refused: unaligned.
  ExpectBytes(*store, {4097, 4096});
  ExpectBytes(*store, {1, 10});
  EXPECT_EQ(store->stats().bytes_direct, 0U);
  EXPECT_EQ(store->stats().bytes, 4106U);
}

TEST_F(UringFileStoreTest, AForkCanNotReadAndCanEnd) {
  const auto store = Open();
  ExpectBytes(*store, {1, 10});
  const int result = ExitCodeOfChild([&store] {
    const ReadAnswer answer = ReadAll(*store, {{kUringObject, {1, 10}}}).front();
    const std::string expected =
        "reading object 1 bytes [1, 11): the store belongs to process " +
        std::to_string(::getppid()) +
        ", and this process is a fork of it; open the dataset again after fork";
    const bool right = answer.status.code() == StatusCode::kFailedPrecondition &&
                       answer.status.message() == expected;
    if (!right) std::cerr << answer.status.ToString() << "\n";
    store->~UringFileStore();
    return right ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
  ExpectBytes(*store, {100, 4000});  // The parent's store still works.
}

TEST_F(UringFileStoreTest, AForkInTheMiddleOfReadsTakesNoneOfThem) {
  const auto store = Open({.queue_depth = 4, .page_cache = false});
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 200; ++i) extents.push_back({kUringObject, {i * 4000, 5000}});
  std::jthread reader([&] {
    const std::vector<ReadAnswer> answers = ReadAll(*store, extents);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      EXPECT_TRUE(answers[i].bytes == bytes_.substr(extents[i].range.offset, 5000));
    }
  });
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(ExitCodeOfChild([&store] {
                store->~UringFileStore();
                return 0;
              }),
              0);
  }
}

}  // namespace
}  // namespace headrace
