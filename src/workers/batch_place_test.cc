#include "workers/batch_place.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "engine/batch/batch_memory.h"
#include "gtest/gtest.h"
#include "headrace/batch.h"

namespace headrace {
namespace {

constexpr std::size_t kBytes = 4096;

// Two buffers of different memories, where the second begins at the end of the first: the system
// mostly gives such neighbours.
std::optional<std::pair<Buffer, Buffer>> Neighbours(BufferPool& pool) {
  std::vector<Buffer> buffers;
  while (buffers.size() < 64) {
    buffers.push_back(pool.AcquireBeyond(kBytes).value());
    for (Buffer& first : buffers) {
      for (Buffer& second : buffers) {
        if (first.bytes().data() + first.bytes().size() == second.bytes().data()) {
          return std::pair(std::move(first), std::move(second));
        }
      }
    }
  }
  return std::nullopt;
}

TEST(BatchPlaceTest, ARowLiesInTheMemoryThatItBeginsInNotInTheOneThatEndsThere) {
  const std::shared_ptr<BufferPool> pool = BufferPool::MakeShared(kBytes).value();
  auto neighbours = Neighbours(*pool);
  ASSERT_TRUE(neighbours.has_value());
  Batch batch;
  batch.memory = std::make_shared<BatchMemory>();
  batch.memory->rows = std::move(neighbours->first);
  batch.memory->extra.push_back(std::move(neighbours->second));
  const BufferPlace first = batch.memory->rows.place();
  const BufferPlace second = batch.memory->extra[0].place();
  ASSERT_NE(first.memory, second.memory);
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, kBytes}) {
    const BufferPlace place = PlaceOfRow(batch, batch.memory->extra[0].bytes().first(size));
    EXPECT_EQ(place.memory, second.memory) << size;
    EXPECT_EQ(place.offset, second.offset) << size;
    EXPECT_EQ(PlaceOfRow(batch, batch.memory->rows.bytes().last(size)).offset,
              first.offset + kBytes - size);
  }
}

TEST(BatchPlaceTest, AnEmptyRowHasAPlaceWhereverItBegins) {
  const std::shared_ptr<BufferPool> pool = BufferPool::MakeShared(kBytes).value();
  Batch batch;
  batch.memory = std::make_shared<BatchMemory>();
  batch.memory->rows = pool->Acquire(kBytes).value();
  for (const std::span<std::byte> row :
       {std::span<std::byte>(), batch.memory->rows.bytes().first(0),
        batch.memory->rows.bytes().last(0)}) {
    EXPECT_EQ(PlaceOfRow(batch, row).memory, batch.memory->rows.place().memory);
  }
}

TEST(BatchPlaceTest, AnEmptyRowOfABatchWithoutMemoryHasNoPlace) {
  EXPECT_EQ(PlaceOfRow(Batch(), {}).memory, nullptr);
}

}  // namespace
}  // namespace headrace
