#include "workers/key_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "workers/batch_place.h"
#include "workers/testing/no_memory.h"

namespace headrace {
namespace {

std::string TextOf(std::span<const std::byte> row) {
  return {reinterpret_cast<const char*>(row.data()), row.size()};
}

TEST(KeyBatchTest, EachSampleHasItsKeyInSharedMemory) {
  const std::shared_ptr<BufferPool> pool = BufferPool::MakeShared(kMiB).value();
  const std::string large(100'000, 'x');
  const std::vector<std::string_view> keys = {"a", "", large, "key"};
  const auto made = MakeKeyBatch(
      *pool,
      {.epoch = 7, .step = 3, .samples = {SampleId{4}, SampleId{5}, SampleId{6}, SampleId{7}}},
      keys);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const Batch& batch = *made.value();
  EXPECT_EQ(batch.epoch, 7U);
  EXPECT_EQ(batch.step, 3U);
  EXPECT_EQ(Raw(batch.samples[3]), 7U);
  const std::vector<BatchField> schema = KeySchema();
  for (std::size_t slot = 0; slot < keys.size(); ++slot) {
    const std::span<std::byte> row = batch.row(schema, 0, slot);
    EXPECT_EQ(TextOf(row), keys[slot]);
    const BufferPlace place = PlaceOfRow(batch, row);
    ASSERT_NE(place.memory, nullptr);
    EXPECT_EQ(TextOf(place.memory->bytes().subspan(place.offset, row.size())), keys[slot]);
  }
}

TEST(KeyBatchTest, ABatchOfNoSamplesHasNoKeys) {
  const std::shared_ptr<BufferPool> pool = BufferPool::MakeShared(kMiB).value();
  const auto made = MakeKeyBatch(*pool, {.step = 1}, {});
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(made.value()->samples.empty());
}

TEST(KeyBatchTest, KeysBeyondThePoolTakeMemoryOfTheirOwn) {
  const std::shared_ptr<BufferPool> pool = BufferPool::MakeShared(4096).value();
  const std::string large(100'000, 'x');
  const std::vector<std::string_view> keys = {large};
  auto made = MakeKeyBatch(*pool, {.samples = {SampleId{1}}}, keys);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(pool->stats().beyond_count, 1U);
  const NoMemory none;
  EXPECT_EQ(MakeKeyBatch(*pool, {.samples = {SampleId{1}}}, keys).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace headrace
