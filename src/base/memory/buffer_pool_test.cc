#include "base/memory/buffer_pool.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <thread>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Another process' view of a buffer.
std::shared_ptr<SharedMemory> MapAgain(const Buffer& buffer) {
  const BufferPlace& place = buffer.place();
  return SharedMemory::Map(UniqueFd(::dup(place.memory->fd())), place.memory->bytes().size())
      .value();
}

std::uint64_t BytesInMemory(const SharedMemory& memory) {
  struct stat stat {};
  EXPECT_EQ(::fstat(memory.fd(), &stat), 0);
  return static_cast<std::uint64_t>(stat.st_blocks) * 512;
}

class BufferPoolEachKindTest : public testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<BufferPool> Make(std::uint64_t capacity_bytes) {
    return GetParam() ? BufferPool::MakeShared(capacity_bytes).value()
                      : BufferPool::Make(capacity_bytes);
  }
};
INSTANTIATE_TEST_SUITE_P(PrivateAndShared, BufferPoolEachKindTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Shared" : "Private"; });

TEST(BufferPoolTest, ABufferOfAPrivatePoolHasNoPlace) {
  const auto pool = BufferPool::Make(4096);
  EXPECT_EQ(pool->Acquire(1)->place().memory, nullptr);
  EXPECT_EQ(pool->AcquireBeyond(1)->place().memory, nullptr);
}

TEST(BufferPoolTest, WhoMapsTheMemoryOnceSeesEveryBufferOfASharedPool) {
  const auto pool = BufferPool::MakeShared(1 << 20).value();
  const std::optional<Buffer> one = pool->Acquire(5000);
  Buffer two = *pool->Acquire(5000);
  ASSERT_EQ(one->place().memory, two.place().memory);
  const auto elsewhere = MapAgain(*one);
  std::memset(one->bytes().data(), 1, 5000);
  std::memset(two.bytes().data(), 2, 5000);
  EXPECT_EQ(elsewhere->bytes()[one->place().offset], std::byte{1});
  EXPECT_EQ(elsewhere->bytes()[two.place().offset + 4999], std::byte{2});
  Buffer moved = std::move(two);
  EXPECT_EQ(moved.place().memory, one->place().memory);
  moved.Reset();
  EXPECT_EQ(moved.place().memory, nullptr);
}

TEST(BufferPoolTest, ABufferBeyondASharedPoolIsAMemoryOfItsOwnThatGoesWithIt) {
  const auto pool = BufferPool::MakeShared(0).value();
  EXPECT_FALSE(pool->Acquire(1).has_value());
  std::optional<Buffer> beyond = pool->AcquireBeyond(5000);
  ASSERT_TRUE(beyond.has_value());
  EXPECT_EQ(beyond->place().offset, 0);
  EXPECT_EQ(beyond->bytes().size(), 8192);
  const auto elsewhere = MapAgain(*beyond);
  std::memset(beyond->bytes().data(), 3, 8192);
  EXPECT_EQ(elsewhere->bytes()[8191], std::byte{3});
  const std::weak_ptr<SharedMemory> memory = beyond->place().memory;
  bool gone_before_the_hook = false;
  pool->SetReleaseHook([&] { gone_before_the_hook = memory.expired(); });
  beyond.reset();
  EXPECT_TRUE(gone_before_the_hook);
  EXPECT_EQ(pool->stats().beyond_bytes, 0);
}

// Where free places are too small for what is asked, their pages have to go, from all processes.
TEST(BufferPoolTest, ASharedPoolNeverHasMoreInMemoryThanItsCapacity) {
  const auto pool = BufferPool::MakeShared(16384).value();
  std::vector<Buffer> held;
  for (int i = 0; i < 4; ++i) {
    held.push_back(*pool->Acquire(4096));
    std::memset(held.back().bytes().data(), 1, 4096);
  }
  const auto elsewhere = MapAgain(held[0]);
  held[0].Reset();
  held[2].Reset();
  EXPECT_EQ(BytesInMemory(*elsewhere), 16384);
  const std::optional<Buffer> large = pool->Acquire(8192);
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(BytesInMemory(*elsewhere), 8192);
  std::memset(large->bytes().data(), 1, 8192);
  EXPECT_EQ(BytesInMemory(*elsewhere), 16384);
}

TEST(BufferPoolTest, ARetiredPoolKeepsNoPagesButThoseOfItsBuffers) {
  const auto pool = BufferPool::MakeShared(1 << 20).value();
  Buffer kept = *pool->Acquire(4096);
  Buffer later = *pool->Acquire(4096);
  Buffer freed = *pool->Acquire(std::uint64_t{16} * 4096);
  for (Buffer* const buffer : {&kept, &later, &freed}) {
    std::memset(buffer->bytes().data(), 1, buffer->bytes().size());
  }
  const auto elsewhere = MapAgain(kept);
  freed.Reset();
  EXPECT_EQ(BytesInMemory(*elsewhere), 18 * 4096U) << "for the next user";
  pool->Retire();
  EXPECT_EQ(kept.place().memory->fd(), -1);
  EXPECT_EQ(BytesInMemory(*elsewhere), 2 * 4096U);
  later.Reset();
  EXPECT_EQ(BytesInMemory(*elsewhere), 4096U);
  EXPECT_EQ(kept.bytes()[4095], std::byte{1});
}

TEST(BufferPoolTest, AChildThatDropsABufferChangesNothingForItsParent) {
  const auto pool = BufferPool::MakeShared(8192).value();
  std::optional<Buffer> inside = pool->Acquire(8192);
  std::optional<Buffer> beyond = pool->AcquireBeyond(4096);
  std::memset(inside->bytes().data(), 5, 8192);
  std::memset(beyond->bytes().data(), 6, 4096);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    inside.reset();
    beyond.reset();
    ::_exit(0);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  EXPECT_EQ(inside->bytes()[8191], std::byte{5});
  EXPECT_EQ(beyond->bytes()[4095], std::byte{6});
  EXPECT_EQ(pool->stats().used_bytes, 8192);
}

TEST(BufferPoolTest, MemoryThatCanNotBeMappedIsAnError) {
  EXPECT_EQ(BufferPool::MakeShared(std::uint64_t{1} << 60).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(BufferPoolTest, ClassesLoseAtMostAnEighth) {
  for (std::uint64_t bytes = 1; bytes < (1u << 22); bytes += 1 + bytes / 97) {
    const std::uint64_t charged = BufferPool::ChargedBytes(bytes);
    EXPECT_GE(charged, bytes);
    EXPECT_EQ(charged % 4096, 0) << bytes;
    if (bytes > 32768) {
      EXPECT_LE(charged - bytes, bytes / 8) << bytes;
    }
  }
  EXPECT_EQ(BufferPool::ChargedBytes(0), 4096);
}

TEST_P(BufferPoolEachKindTest, GivesNothingBeyondItsCapacity) {
  const auto pool = Make(12288);
  std::optional<Buffer> one = pool->Acquire(8192);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->bytes().size(), 8192);
  EXPECT_FALSE(pool->Acquire(8192).has_value());
  std::optional<Buffer> two = pool->Acquire(1);
  ASSERT_TRUE(two.has_value());
  EXPECT_FALSE(pool->Acquire(1).has_value());
  one.reset();
  EXPECT_TRUE(pool->Acquire(8192).has_value());
  EXPECT_EQ(pool->stats().used_bytes_peak, 12288);
}

TEST_P(BufferPoolEachKindTest, MemoryRetainedForOneClassGoesToAnother) {
  const auto pool = Make(16384);
  (void)pool->Acquire(16384);
  for (int i = 0; i < 4; ++i) {
    std::optional<Buffer> small = pool->Acquire(4096);
    ASSERT_TRUE(small.has_value());
    std::memset(small->bytes().data(), 1, small->bytes().size());
  }
}

// Two buffers that are not adjacent have come back, and a larger one is wanted.
TEST_P(BufferPoolEachKindTest, WhoCanWaitTakesNoNewPagesForThoseOfFreeBuffers) {
  const std::uint64_t bytes = std::uint64_t{64} * 1024;
  const auto pool = Make(12 * bytes);
  std::vector<Buffer> held;
  for (int i = 0; i < 12; ++i) held.push_back(*pool->Acquire(bytes));
  held[1].Reset();
  held[3].Reset();
  EXPECT_FALSE(pool->AcquireReady(2 * bytes).has_value());
  EXPECT_TRUE(pool->AcquireReady(bytes).has_value());
  EXPECT_TRUE(pool->Acquire(2 * bytes).has_value());
  for (int i = 4; i < 10; ++i) held[static_cast<std::size_t>(i)].Reset();
  EXPECT_TRUE(pool->AcquireReady(2 * bytes).has_value());
}

TEST_P(BufferPoolEachKindTest, BeyondIsCountedSeparately) {
  const auto pool = Make(0);
  EXPECT_FALSE(pool->Acquire(1).has_value());
  {
    const std::optional<Buffer> beyond = pool->AcquireBeyond(5000);
    ASSERT_TRUE(beyond.has_value());
    EXPECT_EQ(pool->stats().beyond_bytes, 8192);
    EXPECT_EQ(pool->stats().used_bytes, 0);
  }
  EXPECT_EQ(pool->stats().beyond_bytes, 0);
  EXPECT_EQ(pool->stats().beyond_bytes_peak, 8192);
  EXPECT_EQ(pool->stats().beyond_count, 1);
}

TEST_P(BufferPoolEachKindTest, ABufferOutlivesItsPoolsOwner) {
  auto pool = Make(4096);
  std::optional<Buffer> buffer = pool->Acquire(4096);
  pool.reset();
  std::memset(buffer->bytes().data(), 1, 4096);
}

TEST_P(BufferPoolEachKindTest, IsInUseWhileABufferIsThereWithinItsBudgetOrBeyond) {
  const auto pool = Make(4096);
  EXPECT_FALSE(pool->in_use());
  std::optional<Buffer> within = pool->Acquire(1);
  EXPECT_TRUE(pool->in_use());
  const std::optional<Buffer> beyond = pool->AcquireBeyond(1);
  within.reset();
  EXPECT_TRUE(pool->in_use());
}

TEST_P(BufferPoolEachKindTest, TheHookRunsAfterEveryReleaseAndNotOnceItIsGone) {
  const auto pool = Make(4096);
  int released = 0;
  pool->SetReleaseHook([&] { ++released; });
  (void)pool->Acquire(1);
  (void)pool->AcquireBeyond(1);
  EXPECT_EQ(released, 2);
  pool->SetReleaseHook(nullptr);
  (void)pool->Acquire(1);
  EXPECT_EQ(released, 2);
}

// Property: whatever is asked for and given back in whatever order, from several threads, what is
// in use stays below the capacity and no two buffers overlap (each holds what its owner wrote).
TEST_P(BufferPoolEachKindTest, HoldsItsCapacityUnderRandomUseFromThreads) {
  const auto pool = Make(1 << 20);
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&pool, t] {
      Prng prng(t, 0, RandomStream::kOrder);
      std::vector<std::pair<Buffer, unsigned char>> held;
      for (int i = 0; i < 2000; ++i) {
        if (!held.empty() && prng.Below(2) == 0) {
          const std::size_t at = prng.Below(held.size());
          for (const std::byte byte : held[at].first.bytes()) {
            ASSERT_EQ(byte, std::byte{held[at].second});
          }
          std::swap(held[at], held.back());
          held.pop_back();
        } else if (auto buffer = pool->Acquire(prng.Below(100000))) {
          const auto fill = static_cast<unsigned char>(prng.Below(256));
          std::memset(buffer->bytes().data(), fill, buffer->bytes().size());
          held.emplace_back(*std::move(buffer), fill);
        }
      }
    });
  }
  threads.clear();
  EXPECT_LE(pool->stats().used_bytes_peak, 1 << 20);
  EXPECT_EQ(pool->stats().used_bytes, 0);
}

}  // namespace
}  // namespace headrace
