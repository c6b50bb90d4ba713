#include "fetch/fetcher.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// Notes what it is asked to read.
struct NotingSource final : FetchSource {
  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
            const Done& /*done*/) override {
    calls.emplace_back(fetches.begin(), fetches.end());
  }
  std::vector<std::vector<Fetch*>> calls;
};

class FetcherTest : public ::testing::Test {
 protected:
  FetcherTest() {
    for (Fetch& fetch : fetches_) {
      fetch.from = Extent{.range = {0, 16 * kKiB}};
    }
  }
  std::vector<Fetch*> Group(std::size_t count) {
    std::vector<Fetch*> group;
    for (std::size_t i = 0; i < count; ++i) group.push_back(&fetches_[i]);
    return group;
  }

  NotingSource storage_;
  NotingSource tier_;
  NotingSource peer_;
  std::array<Fetch, 4> fetches_;
  std::uint64_t beginning_ = 0;
  std::vector<std::pair<Fetch*, Status>> ended_;
  Fetcher fetcher_{{.sources = {.storage = storage_, .entries = tier_, .nodes = &peer_},
                    .in_flight_max = 3,
                    .ended =
                        [this](Fetch& fetch, const Result<std::span<std::byte>>& data) {
                          ended_.emplace_back(&fetch, data.status());
                        },
                    .beginning = [this](std::uint64_t count) { beginning_ += count; }}};
};

TEST_F(FetcherTest, AGroupHasAllItsMemoryOrNone) {
  const auto pool = BufferPool::Make(48 * kKiB);
  const Buffer other = *pool->Acquire(16 * kKiB);
  EXPECT_EQ(fetcher_.Acquire(Group(3), *pool), Fetcher::Memory::kWait);
  EXPECT_EQ(pool->stats().used_bytes, 16 * kKiB) << "nothing stays taken";
  EXPECT_EQ(fetcher_.Acquire(Group(2), *pool), Fetcher::Memory::kTaken);
  for (Fetch* const fetch : Group(2)) EXPECT_GE(fetch->memory().size(), 16 * kKiB);
}

TEST_F(FetcherTest, MemoryThatIsHeldIsNotTakenAgain) {
  const auto pool = BufferPool::Make(48 * kKiB);
  EXPECT_EQ(fetcher_.Acquire(Group(1), *pool), Fetcher::Memory::kTaken);
  EXPECT_EQ(fetcher_.Acquire(Group(3), *pool), Fetcher::Memory::kTaken);
  for (Fetch* const fetch : Group(3)) EXPECT_GE(fetch->memory().size(), 16 * kKiB);
}

TEST_F(FetcherTest, AGroupThatDoesNotFitKeepsTheMemoryThatItHad) {
  const auto pool = BufferPool::Make(48 * kKiB);
  EXPECT_EQ(fetcher_.Acquire(Group(1), *pool), Fetcher::Memory::kTaken);
  EXPECT_EQ(fetcher_.Acquire(Group(4), *pool), Fetcher::Memory::kWait);
  EXPECT_FALSE(fetches_[0].memory().empty());
  EXPECT_EQ(pool->stats().used_bytes, 16 * kKiB);
}

TEST_F(FetcherTest, MemoryGoesBeyondThePoolOnlyWhereThatIsFreeAndTooSmall) {
  const auto pool = BufferPool::Make(8 * kKiB);
  EXPECT_FALSE(fetcher_.AcquireWithin(Group(3), *pool));
  EXPECT_EQ(pool->stats().beyond_count, 0U);
  EXPECT_EQ(fetcher_.Acquire(Group(3), *pool), Fetcher::Memory::kTaken);
  EXPECT_EQ(pool->stats().beyond_count, 3U);
  std::vector<Fetch*> other = {&fetches_[3]};
  EXPECT_EQ(fetcher_.Acquire(other, *pool), Fetcher::Memory::kWait)
      << "the first will give it back";
}

TEST_F(FetcherTest, WhatIsKeptForOthersIsLeftUnlessNothingIsInUse) {
  const auto pool = BufferPool::Make(64 * kKiB);
  const MemoryTerms terms{.keep_bytes = 32 * kKiB};
  EXPECT_EQ(fetcher_.Acquire(Group(3), *pool, terms), Fetcher::Memory::kTaken) << "it is all free";
  fetches_[1].buffer.Reset();
  fetches_[2].buffer.Reset();
  EXPECT_EQ(fetcher_.Acquire(Group(3), *pool, terms), Fetcher::Memory::kWait);
  EXPECT_EQ(fetcher_.Acquire(Group(2), *pool, terms), Fetcher::Memory::kTaken);
  EXPECT_FALSE(fetcher_.AcquireWithin(Group(3), *pool, terms));
  EXPECT_TRUE(fetcher_.AcquireWithin(Group(3), *pool, {.any = true}));
}

TEST_F(FetcherTest, ReadsOfOtherNodesTakeNoRoomOfThoseOfStorage) {
  fetches_[0].from = SampleAtNode{.nodes = {.first = 1}, .bytes = 16 * kKiB};
  for (Fetch* const fetch : Group(3)) fetcher_.Start(*fetch);
  EXPECT_EQ(fetcher_.stats().in_flight, 3U);
  EXPECT_TRUE(fetcher_.has_room());
  fetcher_.Refuse(fetches_[3]);
  EXPECT_FALSE(fetcher_.has_room());
  fetcher_.Finish(fetches_[0]);
  EXPECT_FALSE(fetcher_.has_room()) << "storage is as busy as before";
  fetcher_.Finish(fetches_[1]);
  EXPECT_TRUE(fetcher_.has_room());
  EXPECT_EQ(fetcher_.stats().in_flight, 2U);
  fetcher_.Flush();
}

// The places of buffers of nearly one size leave the pages of a free pool in pieces.
TEST_F(FetcherTest, AGroupThatFitsTheFreePoolStaysInItWhereverItsPagesLie) {
  const auto pool = BufferPool::Make(10 * kMiB);
  pool->Acquire(11 * kMiB / 8)->Reset();
  std::vector<Buffer> held;
  for (int i = 0; i < 10; ++i) held.push_back(*pool->Acquire(kMiB));
  held.clear();
  fetches_[0].from = Extent{.range = {0, 6 * kMiB}};
  fetches_[1].from = Extent{.range = {0, 5 * kMiB / 4}};
  EXPECT_EQ(fetcher_.Acquire(Group(2), *pool), Fetcher::Memory::kTaken);
  EXPECT_EQ(pool->stats().beyond_count, 0U);
  fetches_[0].buffer.Reset();
  fetches_[1].buffer.Reset();
  EXPECT_TRUE(fetcher_.AcquireWithin(Group(2), *pool));
}

TEST_F(FetcherTest, MemoryThatComesBackDuringTheAttemptIsTakenWithinTheBudget) {
  const auto pool = BufferPool::Make(16 * kKiB);
  for (int round = 0; round < 2000; ++round) {
    Buffer other = *pool->Acquire(16 * kKiB);
    const std::jthread giver([&other] { other.Reset(); });
    Fetcher::Memory got = Fetcher::Memory::kWait;
    while (got == Fetcher::Memory::kWait) got = fetcher_.Acquire(Group(1), *pool);
    ASSERT_EQ(got, Fetcher::Memory::kTaken);
    ASSERT_EQ(pool->stats().beyond_count, 0U) << "round " << round;
    fetches_[0].buffer.Reset();
  }
}

TEST_F(FetcherTest, AFetchWithMemoryOfItsClientTakesNone) {
  const auto pool = BufferPool::Make(kMiB);
  std::vector<std::byte> row(16 * kKiB);
  fetches_[0].room = row;
  EXPECT_EQ(fetcher_.Acquire(Group(1), *pool), Fetcher::Memory::kTaken);
  EXPECT_EQ(pool->stats().used_bytes, 0U);
  EXPECT_EQ(fetches_[0].memory().data(), row.data());
}

TEST_F(FetcherTest, ReadsGoToTheirSourcesTogetherAndAreCountedUntilTheyFinish) {
  const Tier::EntryRef entry;
  fetches_[1].from = &entry;
  for (Fetch* const fetch : Group(3)) fetcher_.Start(*fetch);
  EXPECT_TRUE(storage_.calls.empty());
  EXPECT_EQ(beginning_, 0U);
  fetcher_.Flush();
  EXPECT_EQ(beginning_, 3U);
  EXPECT_EQ(storage_.calls, (std::vector<std::vector<Fetch*>>{{&fetches_[0], &fetches_[2]}}));
  EXPECT_EQ(tier_.calls, (std::vector<std::vector<Fetch*>>{{&fetches_[1]}}));
  EXPECT_FALSE(fetcher_.has_room());
  fetcher_.Finish();
  EXPECT_TRUE(fetcher_.has_room());
  EXPECT_EQ(fetcher_.stats().in_flight, 2U);
  fetcher_.Flush();
  EXPECT_EQ(storage_.calls.size(), 1U) << "nothing is read twice";
}

TEST_F(FetcherTest, CountsWhatStorageWasAskedForOnce) {
  const Tier::EntryRef entry;
  fetches_[1].from = &entry;
  fetcher_.Start(fetches_[0]);
  fetcher_.Start(fetches_[1]);                   // Of a tier.
  fetcher_.Start(fetches_[2], /*first=*/false);  // Was tried before.
  EXPECT_EQ(fetcher_.stats().reads, 1U);
  EXPECT_EQ(fetcher_.stats().read_bytes, 16 * kKiB);
  EXPECT_EQ(fetcher_.stats().in_flight, 3U);
}

TEST_F(FetcherTest, AReadWithoutMemoryEndsWithAnErrorThatSaysHowMuch) {
  fetcher_.Refuse(fetches_[0]);
  ASSERT_EQ(ended_.size(), 1U);
  EXPECT_EQ(ended_[0].second.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ended_[0].second.message(), "reading 16.0 KiB: the system has no memory");
  EXPECT_EQ(beginning_, 1U);
  EXPECT_EQ(fetcher_.stats().in_flight, 1U) << "until the loop finishes it";
}

}  // namespace
}  // namespace headrace
