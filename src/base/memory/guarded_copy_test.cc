#include "base/memory/guarded_copy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::size_t kFilePage = 4096;

// Two pages of a file, of which the second is cut off.
class GuardedCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    InstallCopyGuard();
    file_ = UniqueFd(::memfd_create("test", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file_.get(), 2 * kFilePage), 0);
    ASSERT_EQ(::pwrite(file_.get(), "abc", 3, 0), 3);
    void* const memory = ::mmap(nullptr, 2 * kFilePage, PROT_READ, MAP_SHARED, file_.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    mapped_ = {static_cast<const std::byte*>(memory), 2 * kFilePage};
    ASSERT_EQ(::ftruncate(file_.get(), kFilePage), 0);
  }
  void TearDown() override {
    ASSERT_EQ(::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size()), 0);
  }

  UniqueFd file_;
  std::span<const std::byte> mapped_;
  std::vector<std::byte> to_ = std::vector<std::byte>(2 * kFilePage);
};

TEST_F(GuardedCopyTest, CopiesWhatIsThereAndSaysWhatIsGone) {
  EXPECT_TRUE(GuardedCopy(mapped_.first(kFilePage), to_));
  EXPECT_EQ(to_[2], std::byte{'c'});
  EXPECT_FALSE(GuardedCopy(mapped_, to_));
  EXPECT_FALSE(GuardedCopy(mapped_.subspan(kFilePage), to_));  // The signal is not blocked.
  EXPECT_TRUE(GuardedCopy(mapped_.first(3), to_));
}

TEST_F(GuardedCopyTest, GuardsEachThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      std::vector<std::byte> to(2 * kFilePage);
      for (int copy = 0; copy < 200; ++copy) {
        EXPECT_TRUE(GuardedCopy(mapped_.first(kFilePage), to));
        EXPECT_FALSE(GuardedCopy(mapped_, to));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GuardedCopyTest, AGuardedMappingHasZerosInPlaceOfWhatIsGone) {
  const MappingGuard guard(mapped_);
  const auto at = [this](std::size_t offset) -> std::byte {
    return *const_cast<const volatile std::byte*>(&mapped_[offset]);
  };
  EXPECT_EQ(at(1), std::byte{'b'});
  EXPECT_FALSE(guard.has_lost());
  EXPECT_EQ(at(kFilePage + 7), std::byte{0});
  EXPECT_TRUE(guard.has_lost());
  EXPECT_EQ(at(1), std::byte{'b'}) << "what comes before stays";
  ASSERT_EQ(::ftruncate(file_.get(), 2 * kFilePage), 0);
  ASSERT_EQ(::pwrite(file_.get(), "abc", 3, kFilePage), 3);
  EXPECT_EQ(at(kFilePage), std::byte{0}) << "what was gone stays away";
}

TEST_F(GuardedCopyTest, AnEntryOfAGuardIsUsedAgain) {
  for (int i = 0; i < 3; ++i) {
    const MappingGuard guard(mapped_.first(kFilePage));
    EXPECT_FALSE(guard.has_lost());
    const MappingGuard beside(mapped_.subspan(kFilePage));
    to_[0] = *const_cast<const volatile std::byte*>(&mapped_[kFilePage]);
    EXPECT_EQ(to_[0], std::byte{0});
    EXPECT_FALSE(guard.has_lost());
    EXPECT_EQ(beside.has_lost(), i == 0) << "then zeros are mapped there";
  }
}

TEST_F(GuardedCopyTest, ComesBackAfterSomebodyElsesHandler) {
  ASSERT_NE(std::signal(SIGBUS, [](int) { std::_Exit(3); }), SIG_ERR);
  InstallCopyGuard();
  EXPECT_FALSE(GuardedCopy(mapped_, to_));
}

using GuardedCopyDeathTest = GuardedCopyTest;

TEST_F(GuardedCopyDeathTest, ABusErrorOutsideOfACopyGoesToTheHandlerBefore) {
  EXPECT_EXIT(
      {
        (void)std::signal(SIGBUS, [](int) { std::_Exit(3); });
        InstallCopyGuard();
        to_[0] = *const_cast<const volatile std::byte*>(&mapped_[kFilePage]);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(GuardedCopyDeathTest, ABusErrorAfterTheGuardGoesToTheHandlerBefore) {
  EXPECT_EXIT(
      {
        (void)std::signal(SIGBUS, [](int) { std::_Exit(3); });
        { const MappingGuard guard(mapped_); }
        to_[0] = *const_cast<const volatile std::byte*>(&mapped_[kFilePage]);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(GuardedCopyDeathTest, WithoutOneTheProcessEnds) {
  EXPECT_EXIT(
      {
        (void)std::signal(SIGBUS, SIG_DFL);
        InstallCopyGuard();
        to_[0] = *const_cast<const volatile std::byte*>(&mapped_[kFilePage]);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace headrace
