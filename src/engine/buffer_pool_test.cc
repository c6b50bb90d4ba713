#include "engine/buffer_pool.h"

#include <cstring>
#include <thread>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

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

TEST(BufferPoolTest, GivesNothingBeyondItsCapacity) {
  const auto pool = BufferPool::Make(12288);
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

TEST(BufferPoolTest, MemoryKeptForOneClassGoesToAnother) {
  const auto pool = BufferPool::Make(16384);
  (void)pool->Acquire(16384);
  for (int i = 0; i < 4; ++i) {
    std::optional<Buffer> small = pool->Acquire(4096);
    ASSERT_TRUE(small.has_value());
    std::memset(small->bytes().data(), 1, small->bytes().size());
  }
}

TEST(BufferPoolTest, BeyondIsCountedApart) {
  const auto pool = BufferPool::Make(0);
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

TEST(BufferPoolTest, ABufferOutlivesItsPoolsOwner) {
  auto pool = BufferPool::Make(4096);
  std::optional<Buffer> buffer = pool->Acquire(4096);
  pool.reset();
  std::memset(buffer->bytes().data(), 1, 4096);
}

TEST(BufferPoolTest, TheHookRunsAfterEveryReleaseAndNotOnceItIsGone) {
  const auto pool = BufferPool::Make(4096);
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
TEST(BufferPoolTest, HoldsItsCapacityUnderRandomUseFromThreads) {
  const auto pool = BufferPool::Make(1 << 20);
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
