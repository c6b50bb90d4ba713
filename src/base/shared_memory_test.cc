#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kPage = 4096;

UniqueFd Copy(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

std::uint64_t PagesOf(const SharedMemory& memory) {
  struct stat stat {};
  EXPECT_EQ(::fstat(memory.fd(), &stat), 0);
  return static_cast<std::uint64_t>(stat.st_blocks) * 512 / kPage;
}

// Maps memory that SharedMemory::Make() would not make.
Status Mapped(UniqueFd fd, std::uint64_t bytes) {
  return SharedMemory::Map(std::move(fd), bytes).status();
}

TEST(SharedMemoryTest, WhatCannotBeMadeIsRefusedWithItsNumbers) {
  EXPECT_EQ(SharedMemory::Make("test", 0).status().message(),
            "making shared memory test of 0 bytes: must be in [1 byte, 4096.0 PiB]");
  EXPECT_THAT(std::string(SharedMemory::Make(std::string(201, 'x'), 1).status().message()),
              HasSubstr("x of 1 byte: the name may have 200 bytes"));
}

TEST(SharedMemoryTest, ASecondMappingSeesTheBytes) {
  const auto memory = SharedMemory::Make("test", 10000).value();
  ASSERT_EQ(memory->bytes().size(), 10000);
  memory->bytes()[9999] = std::byte{7};
  const auto again = SharedMemory::Map(Copy(memory->fd()), 10000).value();
  EXPECT_NE(again->bytes().data(), memory->bytes().data());
  EXPECT_EQ(again->bytes()[9999], std::byte{7});
  again->bytes()[0] = std::byte{8};
  EXPECT_EQ(memory->bytes()[0], std::byte{8});
}

TEST(SharedMemoryTest, AMappingOutlivesItsMaker) {
  auto memory = SharedMemory::Make("test", kPage).value();
  memory->bytes()[1] = std::byte{3};
  const auto again = SharedMemory::Map(Copy(memory->fd()), kPage).value();
  memory.reset();
  EXPECT_EQ(again->bytes()[1], std::byte{3});
}

TEST(SharedMemoryTest, TakesNoPageBeforeItIsTouchedAndGivesThemBack) {
  const auto memory = SharedMemory::Make("test", 64 * kGiB).value();
  EXPECT_EQ(PagesOf(*memory), 0);
  std::fill_n(memory->bytes().begin(), 4 * kPage, std::byte{1});
  EXPECT_EQ(PagesOf(*memory), 4);
  EXPECT_TRUE(memory->ReturnPages(kPage, 2 * kPage));
  EXPECT_EQ(PagesOf(*memory), 2);
  EXPECT_EQ(memory->bytes()[kPage - 1], std::byte{1});
  EXPECT_EQ(memory->bytes()[kPage], std::byte{0});
  EXPECT_EQ(memory->bytes()[3 * kPage], std::byte{1});
}

TEST(SharedMemoryTest, AChildWritesTheSamePages) {
  const auto memory = SharedMemory::Make("test", kPage).value();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    memory->bytes()[5] = std::byte{9};
    ::_exit(0);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(memory->bytes()[5], std::byte{9});
}

TEST(SharedMemoryTest, NobodyCanShrinkOrGrowItOrTakeTheSealsOff) {
  const auto memory = SharedMemory::Make("test", 2 * kPage).value();
  EXPECT_NE(::ftruncate(memory->fd(), kPage), 0);
  EXPECT_NE(::ftruncate(memory->fd(), 3 * kPage), 0);
  EXPECT_NE(::fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(::fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(SharedMemoryTest, ASizeThatCanNotBeIsRefused) {
  EXPECT_EQ(SharedMemory::Make("test", 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Make("test", ~std::uint64_t{0}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Make(std::string(201, 'x'), 1).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Mapped(UniqueFd(), 0).code(), StatusCode::kInvalidArgument);
  const Status status = SharedMemory::Make("batches", std::uint64_t{1} << 61).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("making shared memory batches of"));
}

TEST(SharedMemoryTest, WhatIsNoSealedMemfdIsRefused) {
  EXPECT_EQ(Mapped(UniqueFd(), kPage).code(), StatusCode::kFailedPrecondition);
  const Status file = Mapped(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), 1);
  EXPECT_EQ(file.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(file.message(), HasSubstr("not a memfd"));

  UniqueFd open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), kPage), 0);
  EXPECT_THAT(Mapped(Copy(open.get()), kPage).message(), HasSubstr("sealed against shrinking"));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(Mapped(Copy(open.get()), kPage).ok());
  const Status small = Mapped(Copy(open.get()), kPage + 1);
  EXPECT_EQ(small.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(small.message(), HasSubstr("it has 4096 bytes"));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(Mapped(Copy(open.get()), kPage).code(), StatusCode::kFailedPrecondition);
}

// Huge pages are reserved by the first mapping, and may be missing.
TEST(SharedMemoryTest, HugePagesAreRefused) {
  UniqueFd huge(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge) GTEST_SKIP() << "no memfd of huge pages can be made here";
  ASSERT_EQ(::ftruncate(huge.get(), 2 * kMiB), 0);
  ASSERT_EQ(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_THAT(Mapped(std::move(huge), kPage).message(), HasSubstr("not a memfd"));
}

}  // namespace
}  // namespace headrace
