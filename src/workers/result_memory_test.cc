#include "workers/result_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "base/units.h"
#include "workers/testing/no_memory.h"

namespace headrace {
namespace {

const std::uint64_t kBatchBytes = BufferPool::ChargedBytes(1);

TransformedBatch BatchOf(std::uint64_t bytes) {
  TransformedBatch batch;
  batch.layout.bytes = bytes;
  return batch;
}

class ResultMemoryTest : public ::testing::Test {
 protected:
  // False: there is none now.
  static bool Give(ResultMemory& memory, TransformedBatch& batch, bool beyond = false) {
    const Result<bool> given = memory.Give(batch, beyond);
    EXPECT_TRUE(given.ok()) << given.status().ToString();
    EXPECT_EQ(given.value(), !batch.memory.bytes().empty());
    return given.value();
  }

  int freed_ = 0;
  const std::function<void()> on_free_ = [this] { ++freed_; };
};

TEST_F(ResultMemoryTest, OneBatchShowsTheSizeOfAllAndTheConsumerHasRoomForTwo) {
  ResultMemory memory({.bytes = 6 * kBatchBytes, .batches_max = 8}, on_free_);
  EXPECT_EQ(memory.BatchesMax(), 1U);
  EXPECT_EQ(memory.stats().capacity_bytes, 0U);
  TransformedBatch batch = BatchOf(1);
  EXPECT_TRUE(Give(memory, batch));
  EXPECT_EQ(memory.BatchesMax(), 4U);
  EXPECT_EQ(memory.stats().capacity_bytes, 6 * kBatchBytes);
  TransformedBatch larger = BatchOf(2 * kBatchBytes);
  EXPECT_TRUE(Give(memory, larger));
  EXPECT_EQ(memory.BatchesMax(), 1U);
}

TEST_F(ResultMemoryTest, WithoutALimitTheMostBatchesAreThereAtOnce) {
  ResultMemory memory({.bytes = std::nullopt, .batches_max = 8}, on_free_);
  EXPECT_FALSE(memory.is_limited());
  EXPECT_EQ(memory.BatchesMax(), 8U);
  TransformedBatch batch = BatchOf(kBatchBytes);
  EXPECT_TRUE(Give(memory, batch));
  EXPECT_FALSE(batch.beyond_budget);
  EXPECT_EQ(memory.BatchesMax(), 8U);
}

TEST_F(ResultMemoryTest, WithoutALimitFewAddressesMakeThePoolSmaller) {
  ResultMemory memory({.bytes = std::nullopt, .batches_max = 8}, on_free_);
  TransformedBatch batch = BatchOf(kBatchBytes);
  {
    const NoMemory beyond(kGiB);
    EXPECT_TRUE(Give(memory, batch));
  }
  EXPECT_LE(memory.stats().capacity_bytes, kGiB);
  EXPECT_GE(memory.stats().capacity_bytes, kMiB);
}

TEST_F(ResultMemoryTest, RenewedItGivesOtherMemoryAndLeavesThatOfBatchesAlone) {
  ResultMemory memory({.bytes = std::nullopt, .batches_max = 8}, on_free_);
  auto before = std::make_unique<TransformedBatch>(BatchOf(kBatchBytes));
  EXPECT_TRUE(Give(memory, *before));
  const std::shared_ptr<SharedMemory> shared = before->memory.place().memory;
  const std::span<std::byte> bytes = before->memory.bytes();
  bytes[0] = std::byte{7};
  memory.Renew();
  before.reset();
  EXPECT_EQ(freed_, 0);
  TransformedBatch after = BatchOf(kBatchBytes);
  EXPECT_TRUE(Give(memory, after));
  EXPECT_NE(after.memory.place().memory, shared);
  EXPECT_EQ(shared->bytes()[0], std::byte{7}) << "as a forked child sees it";
}

TEST_F(ResultMemoryTest, BatchesAreNoMoreThanTheMostAndNeverNone) {
  ResultMemory large({.bytes = 100 * kBatchBytes, .batches_max = 3}, on_free_);
  ResultMemory small({.bytes = kBatchBytes, .batches_max = 3}, on_free_);
  for (ResultMemory* memory : {&large, &small}) {
    TransformedBatch batch = BatchOf(1);
    EXPECT_TRUE(Give(*memory, batch));
  }
  EXPECT_EQ(large.BatchesMax(), 3U);
  EXPECT_EQ(small.BatchesMax(), 1U);
}

TEST_F(ResultMemoryTest, ResultsThatWorkersBufferTakeAsMuchAgain) {
  ResultMemory memory({.bytes = 8 * kBatchBytes, .batches_max = 8, .twice = true}, on_free_);
  TransformedBatch batch = BatchOf(1);
  EXPECT_TRUE(Give(memory, batch));
  EXPECT_EQ(memory.BatchesMax(), 3U);
}

TEST_F(ResultMemoryTest, ABatchBeyondTheLimitIsForAConsumerThatWaits) {
  ResultMemory memory({.bytes = kBatchBytes, .batches_max = 4}, on_free_);
  TransformedBatch first = BatchOf(1);
  TransformedBatch second = BatchOf(1);
  EXPECT_TRUE(Give(memory, first));
  EXPECT_FALSE(Give(memory, second));
  EXPECT_FALSE(second.beyond_budget);
  EXPECT_TRUE(Give(memory, second, /*beyond=*/true));
  EXPECT_TRUE(second.beyond_budget);
  EXPECT_FALSE(first.beyond_budget);
  EXPECT_EQ(memory.stats().beyond_count, 1U);
}

TEST_F(ResultMemoryTest, ABatchLargerThanAllMemoryWaitsUntilAllIsFree) {
  ResultMemory memory({.bytes = kBatchBytes, .batches_max = 4}, on_free_);
  TransformedBatch first = BatchOf(1);
  TransformedBatch large = BatchOf(3 * kBatchBytes);
  TransformedBatch next = BatchOf(3 * kBatchBytes);
  EXPECT_TRUE(Give(memory, first));
  EXPECT_FALSE(Give(memory, large));
  first.memory.Reset();
  EXPECT_TRUE(Give(memory, large));
  EXPECT_TRUE(large.beyond_budget);
  EXPECT_FALSE(Give(memory, next)) << "what lies beyond is in use, too";
}

TEST_F(ResultMemoryTest, EachReleaseIsToldUntilTheEnd) {
  TransformedBatch held = BatchOf(1);
  {
    ResultMemory memory({.bytes = 4 * kBatchBytes, .batches_max = 4}, on_free_);
    TransformedBatch batch = BatchOf(1);
    EXPECT_TRUE(Give(memory, batch));
    EXPECT_TRUE(Give(memory, held));
    EXPECT_EQ(freed_, 0);
    batch.memory.Reset();
    EXPECT_EQ(freed_, 1);
  }
  held.memory.Reset();
  EXPECT_EQ(freed_, 1);
}

TEST_F(ResultMemoryTest, MemoryThatTheSystemDoesNotHaveIsAnErrorThatNamesItsSize) {
  ResultMemory memory({.bytes = kBatchBytes, .batches_max = 4}, on_free_);
  TransformedBatch batch = BatchOf(std::uint64_t{1} << 63);
  const Status status = memory.Give(batch, false).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "the system has no memory for a batch of 8192.0 PiB");
}

TEST_F(ResultMemoryTest, TheFirstBatchFindsOutThatThereIsNoMemoryAtAll) {
  ResultMemory memory({.bytes = kMiB, .batches_max = 4}, on_free_);
  TransformedBatch batch = BatchOf(1);
  const auto give = [&] {
    const NoMemory no_memory;
    return memory.Give(batch, false).status().code();
  };
  EXPECT_EQ(give(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Give(memory, batch)) << "there is some now";
}

}  // namespace
}  // namespace headrace
