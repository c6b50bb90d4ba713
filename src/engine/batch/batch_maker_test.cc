#include "engine/batch/batch_maker.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/batch/batch_memory.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

using WhenFull = BatchMaker::WhenFull;

// Samples of 10, 100 and 300,000 bytes; a ragged field and a label.
class BatchMakerTest : public ::testing::Test {
 protected:
  BatchMakerTest() {
    TableIndex::Column column{.info = {.name = "text"}};
    std::uint64_t offset = 0;
    for (const std::uint64_t size : {10U, 100U, 300'000U}) {
      column.extents.push_back({ObjectId{0}, {offset, size}});
      offset += size;
    }
    index_.samples = column.extents.size();
    index_.objects = {std::string(offset, 'x')};
    index_.columns = {column};
    index_.labels = {0, 1, 2};
    schema_ = {{.name = "text", .index_field = 0, .codec = MakeBytesCodec(), .ragged = true},
               {.name = "label", .index_field = 1, .dtype = DType::kInt64, .row_bytes = 8}};
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      step_.deliveries.push_back({.sample = SampleId{2 - slot}, .slot = slot});
    }
    step_.epoch = 4;
    step_.step = 9;
    step_.ends_epoch = true;
  }

  Result<std::shared_ptr<Batch>> Make(WhenFull when_full) {
    return BatchMaker(index_, schema_, store_).Make(step_, *pool_, when_full);
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  MemoryStore store_{{}};
  Step step_;
  std::shared_ptr<BufferPool> pool_ = BufferPool::Make(4 * kMiB);
};

TEST_F(BatchMakerTest, EachRowHasItsOwnMemoryOfItsOwnSize) {
  const std::shared_ptr<Batch> batch = Make(WhenFull::kWait).value();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->epoch, 4U);
  EXPECT_EQ(batch->step, 9U);
  EXPECT_TRUE(batch->ends_epoch);
  EXPECT_EQ(batch->samples, (std::vector<SampleId>{SampleId{2}, SampleId{1}, SampleId{0}}));
  std::vector<std::span<std::byte>> rows;
  const std::vector<std::size_t> sizes = {300'000, 100, 10};
  for (std::size_t slot = 0; slot < 3; ++slot) {
    rows.push_back(batch->row(schema_, 0, slot));
    EXPECT_EQ(rows.back().size(), sizes[slot]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.back().data()) % kRowAlignment, 0U);
    rows.push_back(batch->row(schema_, 1, slot));
    EXPECT_EQ(rows.back().size(), 8U);
  }
  const std::span<std::byte> memory = batch->memory->rows.bytes();
  std::vector<bool> used(memory.size());
  for (const std::span<std::byte> row : rows) {
    for (const std::byte& byte : row) {
      const auto at = static_cast<std::size_t>(&byte - memory.data());
      ASSERT_LT(at, used.size());
      ASSERT_FALSE(used[at]) << "two rows share a byte";
      used[at] = true;
    }
  }
}

TEST_F(BatchMakerTest, RowsThatAreReadIntoAreAlignedAsTheStoreAsks) {
  const std::shared_ptr<Batch> batch = Make(WhenFull::kWait).value();
  const std::byte* const row = batch->row(schema_, 0, 0).data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(row) % kBufferAlignment, 0U);
}

TEST_F(BatchMakerTest, AFullPoolMeansToWaitUnlessThatIsInVain) {
  pool_ = BufferPool::Make(512 * kKiB);
  const std::shared_ptr<Batch> first = Make(WhenFull::kWait).value();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Make(WhenFull::kWait).value(), nullptr);
  EXPECT_EQ(Make(WhenFull::kBeyondIfFree).value(), nullptr) << "the first batch will be released";
  EXPECT_EQ(pool_->stats().beyond_count, 0U);
  const std::shared_ptr<Batch> beyond = Make(WhenFull::kBeyond).value();
  ASSERT_NE(beyond, nullptr);
  EXPECT_TRUE(beyond->beyond_budget);
  EXPECT_FALSE(first->beyond_budget);
}

TEST_F(BatchMakerTest, MemoryThatComesBackDuringTheAttemptIsTakenWithinTheBudget) {
  pool_ = BufferPool::Make(512 * kKiB);
  for (int round = 0; round < 2000; ++round) {
    Buffer other = *pool_->Acquire(512 * kKiB);
    const std::jthread giver([&other] { other.Reset(); });
    std::shared_ptr<Batch> batch;
    while (batch == nullptr) batch = Make(WhenFull::kBeyondIfFree).value();
    ASSERT_FALSE(batch->beyond_budget) << "round " << round;
  }
}

TEST_F(BatchMakerTest, ABatchLargerThanAPoolThatIsFreeGoesBeyondIt) {
  pool_ = BufferPool::Make(64 * kKiB);
  EXPECT_EQ(Make(WhenFull::kWait).value(), nullptr);
  const std::shared_ptr<Batch> batch = Make(WhenFull::kBeyondIfFree).value();
  ASSERT_NE(batch, nullptr);
  EXPECT_TRUE(batch->beyond_budget);
}

}  // namespace
}  // namespace headrace
