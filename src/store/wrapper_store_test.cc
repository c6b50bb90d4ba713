// Stores around stores, and the store of samples without I/O.

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/memory_store.h"
#include "store/retry_store.h"
#include "store/synthetic_store.h"
#include "store/testing/faulty_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

constexpr ObjectId kWrappedObject{1};

std::unique_ptr<MemoryStore> TenBytes() {
  return std::make_unique<MemoryStore>(
      std::unordered_map<ObjectId, std::string>{{kWrappedObject, "0123456789"}});
}

std::unique_ptr<FaultyStore> Faulty(FaultyStoreOptions options) {
  return std::make_unique<FaultyStore>(TenBytes(), options);
}

std::vector<Extent> EveryByte() {
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 10; ++i) extents.push_back({kWrappedObject, {i, 1}});
  return extents;
}

TEST(MemoryStoreTest, ReadPastTheEndNamesTheRangeAndTheObjectSize) {
  const ReadAnswer answer = ReadAll(*TenBytes(), {{kWrappedObject, {8, 4}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(answer.status.message(), "reading object 1 bytes [8, 12): object has 10 bytes");
}

// Answers checks with Unavailable, so many times.
class BusyStore final : public ByteStore {
 public:
  explicit BusyStore(int times) : times_(times) {}
  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> /*requests*/, std::stop_token /*stop*/) override {}
  [[nodiscard]] Status CheckObject(ObjectId /*object*/) override {
    return times_-- > 0 ? Status(StatusCode::kUnavailable, "busy") : Status();
  }
  [[nodiscard]] StoreStats stats() const override { return {}; }

 private:
  int times_;
};

TEST(RetryStoreTest, ChecksAgainWhatIsUnavailable) {
  EXPECT_TRUE(RetryStore(std::make_unique<BusyStore>(2), 3).CheckObject(kWrappedObject).ok());
  const Status status = RetryStore(std::make_unique<BusyStore>(3), 3).CheckObject(kWrappedObject);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST(RetryStoreTest, ReadsAgainWhatIsUnavailable) {
  // Half of all tries fail: at least one of ten ranges fails at first, none fails 40 times.
  RetryStore store(Faulty({.seed = 1, .unavailable = 0.5}), /*tries_max=*/40);
  const std::vector<ReadAnswer> answers = ReadAll(store, EveryByte());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].bytes, std::to_string(i));
    EXPECT_EQ(answers[i].times, 1);
  }
  const StoreStats stats = store.stats();
  EXPECT_EQ(stats.name, "faulty");
  EXPECT_EQ(stats.reads, 10U);
  EXPECT_EQ(stats.bytes, 10U);
  EXPECT_EQ(stats.failures, 0U);
  EXPECT_GT(stats.retries, 0U);
}

TEST(RetryStoreTest, GivesUpAfterItsTriesAndSaysHowMany) {
  RetryStore store(Faulty({.unavailable = 1}), /*tries_max=*/3);
  const ReadAnswer answer = ReadAll(store, {{kWrappedObject, {8, 2}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(answer.status.message(),
            "reading object 1 bytes [8, 10): fault planted by the test after 3 tries");
  EXPECT_EQ(store.stats().retries, 2U);
  EXPECT_EQ(store.stats().failures, 1U);
}

TEST(RetryStoreTest, DoesNotRepeatWhatARepetitionCanNotHelp) {
  RetryStore store(Faulty({.short_read = 1}), /*tries_max=*/3);
  const ReadAnswer answer = ReadAll(store, {{kWrappedObject, {8, 2}}}).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(store.stats().retries, 0U);
}

TEST(RetryStoreTest, AStopEndsTheTries) {
  std::stop_source stop;
  auto gated = std::make_unique<GatedStore>(Faulty({.unavailable = 1}));
  GatedStore& gate = *gated;
  RetryStore store(std::move(gated), /*tries_max=*/1000);
  int tries = 0;
  const auto pump = [&] {
    if (++tries == 3) stop.request_stop();
    gate.Release(0);
  };
  const ReadAnswer answer =
      ReadAll(store, {{kWrappedObject, {8, 2}}}, stop.get_token(), pump).front();
  EXPECT_EQ(answer.status.code(), StatusCode::kCancelled);
  EXPECT_EQ(tries, 3);
}

TEST(SyntheticStoreTest, GivesTheLargestPrototypeThatFitsThenZeros) {
  SyntheticStore store({"abcd", "xy"});
  const auto read = [&store](std::uint64_t size) {
    return ReadAll(store, {{ObjectId{5}, {1000, size}}}).front().bytes;
  };
  EXPECT_EQ(read(0), "");
  EXPECT_EQ(read(1), std::string("\0", 1));
  EXPECT_EQ(read(2), "xy");
  EXPECT_EQ(read(3), std::string("xy\0", 3));
  EXPECT_EQ(read(4), "abcd");
  EXPECT_EQ(read(6), std::string("abcd\0\0", 6));
  EXPECT_EQ(store.stats().name, "synthetic");
  EXPECT_EQ(store.stats().bytes, 16U);
}

TEST(SyntheticStoreTest, WithoutPrototypesItGivesZeros) {
  SyntheticStore store({});
  EXPECT_EQ(ReadAll(store, {{kWrappedObject, {0, 3}}}).front().bytes, std::string(3, '\0'));
}

TEST(SyntheticStoreTest, AStopIsHeeded) {
  SyntheticStore store({});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(ReadAll(store, {{kWrappedObject, {0, 3}}}, stop.get_token()).front().status.code(),
            StatusCode::kCancelled);
}

TEST(FaultyStoreTest, FaultsDependOnSeedAndRangeOnly) {
  const auto outcomes = [](std::uint64_t seed, const std::vector<Extent>& extents) {
    const auto store = Faulty({.seed = seed, .unavailable = 0.3, .short_read = 0.3});
    std::map<std::uint64_t, StatusCode> codes;
    const std::vector<ReadAnswer> answers = ReadAll(*store, extents);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      codes[extents[i].range.offset] = answers[i].status.code();
    }
    return codes;
  };
  const std::vector<Extent> forward = EveryByte();
  const std::vector<Extent> backward(forward.rbegin(), forward.rend());
  EXPECT_EQ(outcomes(1, forward), outcomes(1, backward));
  EXPECT_NE(outcomes(1, forward), outcomes(2, forward));
}

TEST(FaultyStoreTest, FlipsOneBit) {
  const auto store = Faulty({.flipped = 1});
  const std::string bytes = ReadAll(*store, {{kWrappedObject, {0, 10}}}).front().bytes;
  int different = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    different += __builtin_popcount(static_cast<unsigned>(bytes[i] ^ "0123456789"[i]) & 0xffU);
  }
  EXPECT_EQ(different, 1);
}

TEST(GatedStoreTest, AnswersInTheOrderInWhichItIsTold) {
  GatedStore store(TenBytes());
  std::string order;
  std::vector<AlignedBuffer> buffers;
  std::vector<ReadRequest> requests;
  for (const Extent& extent : EveryByte()) {
    buffers.emplace_back(1);
    requests.push_back(
        {extent, buffers.back().bytes(), [&order](const Result<std::span<std::byte>>& result) {
           order += result.ok() ? static_cast<char>(result.value()[0]) : '!';
         }});
  }
  store.Read(std::move(requests), {});
  EXPECT_EQ(order, "");
  EXPECT_EQ(store.waiting(), EveryByte());
  store.Release(9);
  store.Release(0);
  store.Fail(0, Status(StatusCode::kUnavailable, "told to"));
  EXPECT_EQ(order, "90!");
  store.ReleaseAll();
  EXPECT_EQ(order, "90!2345678");
  EXPECT_TRUE(store.waiting().empty());
}

}  // namespace
}  // namespace headrace
