#include "loader/session/open_store.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/memory_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

constexpr ObjectId kObject{1};

std::unique_ptr<MemoryStore> Memory(const std::string& bytes) {
  return std::make_unique<MemoryStore>(std::unordered_map<ObjectId, std::string>{{kObject, bytes}});
}

TEST(ReadExtentsTest, ExtentsLandOneAfterTheOtherAlsoLargeAndEmptyOnes) {
  const std::string bytes = RandomBytes(3, 9 * kMiB + 5);
  const auto store = Memory(bytes);
  const std::vector<Extent> extents = {{kObject, {bytes.size() - 1, 1}},
                                       {kObject, {0, bytes.size()}},
                                       {kObject, {5, 0}},
                                       {kObject, {7, 3}}};
  std::string read(bytes.size() + 4, '\0');
  ASSERT_TRUE(ReadExtents(*store, extents, std::as_writable_bytes(std::span(read))).ok());
  EXPECT_TRUE(read == bytes.substr(bytes.size() - 1) + bytes + bytes.substr(7, 3));
}

TEST(ReadExtentsTest, TheErrorOfAReadIsTheAnswer) {
  const auto store = Memory("0123456789");
  std::string read(8, '\0');
  const std::vector<Extent> extents = {{kObject, {0, 4}}, {kObject, {8, 4}}};
  const Status status = ReadExtents(*store, extents, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "reading object 1 bytes [8, 12): object has 10 bytes");
}

TEST(ReadExtentsTest, StopsWithoutWaitingForReadsAndTouchesNothingLater) {
  GatedStore store(Memory("0123456789"));
  std::string read(10, 'x');
  const std::vector<Extent> extents = {{kObject, {0, 10}}};
  const Status status =
      ReadExtents(store, extents, std::as_writable_bytes(std::span(read)), [] { return false; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(store.waiting(), extents);
  store.ReleaseAll();
  EXPECT_EQ(read, "xxxxxxxxxx");
}

TEST(ReadExtentsTest, IsStoppedAlsoWhileAnswersComeAtOnce) {
  const auto store = Memory("0123456789");
  const std::vector<Extent> extents(2'000'000, {kObject, {0, 1}});
  std::string read(extents.size(), 'x');
  const Status status =
      ReadExtents(*store, extents, std::as_writable_bytes(std::span(read)), [] { return false; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(read.back(), 'x');
}

}  // namespace
}  // namespace headrace
