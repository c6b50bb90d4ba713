#include "base/memory/arena.h"

#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "base/shared_memory.h"
#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPage = 4096;

// Pages of [piece, piece + bytes) in memory, in bytes.
std::uint64_t Resident(std::byte* piece, std::uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / kPage);
  EXPECT_EQ(mincore(piece, bytes, pages.data()), 0);
  std::uint64_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1u) * kPage;
  return resident;
}

TEST(ArenaTest, APieceGivenBackIsUsedAgainWithItsPagesBySmallerAndLargerOnes) {
  Arena arena(16 * kPage);
  std::byte* const a = arena.Take(3 * kPage, 0);
  std::byte* const b = arena.Take(3 * kPage, 3 * kPage);
  ASSERT_EQ(b, a + 3 * kPage);
  std::memset(a, 1, 6 * kPage);
  arena.GiveBack(b, 3 * kPage);
  arena.GiveBack(a, 3 * kPage);
  std::byte* const joined = arena.Take(5 * kPage, 0);
  EXPECT_EQ(joined, a);
  EXPECT_EQ(Resident(joined, 5 * kPage), 5 * kPage);
  arena.GiveBack(joined, 5 * kPage);
  EXPECT_EQ(arena.Take(kPage, 0), a);
}

TEST(ArenaTest, FreePagesGoToTheSystemWhereTheirPlacesAreTooSmall) {
  Arena arena(4 * kPage);
  std::vector<std::byte*> pieces;
  for (std::uint64_t i = 0; i < 4; ++i) {
    pieces.push_back(arena.Take(kPage, i * kPage));
    std::memset(pieces.back(), 1, kPage);
  }
  arena.GiveBack(pieces[0], kPage);
  arena.GiveBack(pieces[2], kPage);
  std::byte* const large = arena.Take(2 * kPage, 2 * kPage);
  ASSERT_NE(large, nullptr);
  std::memset(large, 2, 2 * kPage);
  EXPECT_EQ(Resident(pieces[0], 4 * kPage) + Resident(large, 2 * kPage), 4 * kPage);
}

// What a loader's memory does: a dozen pieces in use at a time, each up to an eighth larger or
// smaller than the others. Places come to fit all of them, so that no page is returned.
TEST(ArenaTest, PiecesOfNearlyOneSizeUseTheSamePagesAgain) {
  constexpr std::uint64_t kMax = std::uint64_t{12} * 288 * kPage;
  Arena arena(kMax);
  Prng prng(1, 0, RandomStream::kOrder);
  struct Held {
    std::byte* piece;
    std::uint64_t bytes;
  };
  std::deque<Held> held;
  std::uint64_t used = 0;
  std::uint64_t returned = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bytes = (256 + 32 * prng.Below(2)) * kPage;
    std::optional<std::byte*> piece;
    while (!piece.has_value()) {
      if (used + bytes <= kMax) piece = arena.TakeReady(bytes, used);
      if (piece.has_value()) break;
      if (used <= kMax / 2) {
        returned += i >= 100 ? 1 : 0;
        piece = arena.Take(bytes, used);
        break;
      }
      used -= held.front().bytes;
      arena.GiveBack(held.front().piece, held.front().bytes);
      held.pop_front();
    }
    held.push_back({*piece, bytes});
    ASSERT_NE(held.back().piece, nullptr);
    used += bytes;
  }
  EXPECT_EQ(returned, 0);
}

// A budget is what the user says, or a quarter of it: any number of bytes.
TEST(ArenaTest, ALimitThatEndsInsideAPageCountsItsWholePages) {
  Arena arena(4 * kPage + 1234);
  std::byte* const first = arena.Take(kPage, 0);
  std::byte* const second = arena.Take(2 * kPage, kPage);
  arena.GiveBack(first, kPage);
  std::byte* const third = arena.Take(2 * kPage, 2 * kPage);  // Returns the page of the first.
  ASSERT_NE(third, nullptr);
  arena.GiveBack(second, 2 * kPage);
  arena.GiveBack(third, 2 * kPage);
  EXPECT_NE(arena.Take(4 * kPage, 0), nullptr);
}

TEST(ArenaTest, AnArenaOfNothingOwnsNothing) {
  const Arena arena(0);
  std::byte somewhere{};
  EXPECT_FALSE(arena.Owns(&somewhere));
}

TEST(ArenaTest, PagesOfSharedMemoryGoToTheSystemForAllWhoMapThem) {
  const auto memory = SharedMemory::Make("test", Arena::MappedBytes(4 * kPage)).value();
  const auto elsewhere =
      SharedMemory::Map(UniqueFd(::dup(memory->fd())), memory->bytes().size()).value();
  Arena arena(4 * kPage, memory);
  std::vector<std::byte*> pieces;
  for (std::uint64_t i = 0; i < 4; ++i) {
    pieces.push_back(arena.Take(kPage, i * kPage));
    EXPECT_EQ(arena.OffsetOf(pieces.back()), i * kPage);
    std::memset(pieces.back(), 1, kPage);
  }
  EXPECT_EQ(elsewhere->bytes()[2 * kPage], std::byte{1});
  arena.GiveBack(pieces[0], kPage);
  arena.GiveBack(pieces[2], kPage);
  ASSERT_NE(arena.Take(2 * kPage, 2 * kPage), nullptr);
  EXPECT_EQ(Resident(memory->bytes().data(), memory->bytes().size()), 2 * kPage);
  EXPECT_EQ(elsewhere->bytes()[2 * kPage], std::byte{0});
  EXPECT_EQ(elsewhere->bytes()[3 * kPage], std::byte{1});
}

TEST(ArenaTest, AnArenaOfNothingMapsNothing) {
  EXPECT_EQ(Arena::MappedBytes(kPage - 1), 0);
  EXPECT_EQ(Arena::MappedBytes(~std::uint64_t{0}), 0);
  const Arena arena(0, nullptr);
  std::byte somewhere{};
  EXPECT_FALSE(arena.Owns(&somewhere));
}

// Property: pieces of whatever size, in whatever order, do not overlap, and what the mapping has in
// memory never passes the limit.
void ExpectBelowItsLimitUnderRandomUse(Arena& arena, std::uint64_t pages) {
  std::byte* const base = arena.Take(kPage, 0);
  arena.GiveBack(base, kPage);
  Prng prng(1, 0, RandomStream::kOrder);
  struct Held {
    std::byte* piece;
    std::uint64_t bytes;
    unsigned char fill;
  };
  std::vector<Held> held;
  std::uint64_t used = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t bytes = (1 + prng.Below(24)) * kPage;
    if (!held.empty() && (used + bytes > pages * kPage || prng.Below(2) == 0)) {
      std::swap(held[prng.Below(held.size())], held.back());
      const Held last = held.back();
      held.pop_back();
      for (std::uint64_t at = 0; at < last.bytes; ++at) {
        ASSERT_EQ(last.piece[at], std::byte{last.fill});
      }
      arena.GiveBack(last.piece, last.bytes);
      used -= last.bytes;
    } else if (used + bytes <= pages * kPage) {
      std::byte* const piece = arena.Take(bytes, used);
      if (piece == nullptr) continue;  // Places can be too small: the caller has others.
      ASSERT_TRUE(arena.Owns(piece));
      held.push_back({piece, bytes, static_cast<unsigned char>(prng.Below(256))});
      std::memset(piece, held.back().fill, bytes);
      used += bytes;
    }
    ASSERT_LE(Resident(base, 2 * pages * kPage), pages * kPage);
  }
}

constexpr std::uint64_t kArenaPages = 64;

TEST(ArenaTest, StaysBelowItsLimitUnderRandomUse) {
  Arena arena(kArenaPages * kPage);
  ExpectBelowItsLimitUnderRandomUse(arena, kArenaPages);
}

TEST(ArenaTest, StaysBelowItsLimitUnderRandomUseInSharedMemory) {
  Arena arena(kArenaPages * kPage,
              SharedMemory::Make("test", Arena::MappedBytes(kArenaPages * kPage)).value());
  ExpectBelowItsLimitUnderRandomUse(arena, kArenaPages);
}

}  // namespace
}  // namespace headrace
