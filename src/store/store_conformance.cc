#include "store/store_conformance.h"

#include <atomic>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

namespace headrace {

using testing::AnyOf;
using testing::HasSubstr;

void StoreConformanceTest::SetUp() {
  objects_[kLarge] = RandomBytes(1, 300 * 4096 + 123);
  objects_[kSmall] = RandomBytes(2, 10);
  objects_[kEmpty] = "";
  Result<std::unique_ptr<StoreUnderTest>> made = GetParam().make(objects_);
  if (!made.ok()) GTEST_SKIP() << made.status().ToString();
  made_ = std::move(made).value();
}

std::string StoreConformanceTest::Expected(const Extent& extent) const {
  return object(extent.object).substr(extent.range.offset, extent.range.size);
}

Result<std::string> StoreConformanceTest::ReadOne(const Extent& extent, std::stop_token stop) {
  ReadAnswer answer = ReadAll(store(), {extent}, std::move(stop), made_->pump()).front();
  EXPECT_EQ(answer.times, 1);
  if (!answer.status.ok()) return answer.status;
  return std::move(answer.bytes);
}

void StoreConformanceTest::ExpectBytes(const std::vector<Extent>& extents) {
  const std::vector<ReadAnswer> answers = ReadAll(store(), extents, {}, made_->pump());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.ToString();
    EXPECT_EQ(answers[i].times, 1);
    ASSERT_TRUE(answers[i].bytes == Expected(extent))
        << "wrong bytes of object " << Raw(extent.object) << " at " << extent.range.offset << ", "
        << extent.range.size << " bytes";
  }
}

TEST_P(StoreConformanceTest, ReadsWholeObjects) {
  ExpectBytes({{kLarge, {0, object(kLarge).size()}}, {kSmall, {0, 10}}, {kEmpty, {0, 0}}});
}

TEST_P(StoreConformanceTest, ReadsRangesThatStartAndEndBesideBlockBoundaries) {
  std::vector<Extent> extents;
  for (const std::uint64_t offset : {0U, 1U, 511U, 512U, 513U, 4095U, 4096U, 4097U}) {
    for (const std::uint64_t size : {1U, 511U, 512U, 513U, 4095U, 4096U, 4097U, 100'000U}) {
      extents.push_back({kLarge, {offset, size}});
    }
  }
  ExpectBytes(extents);
}

TEST_P(StoreConformanceTest, ReadsRangesThatEndAtTheEndOfTheObject) {
  const std::uint64_t end = object(kLarge).size();
  std::vector<Extent> extents = {{kSmall, {3, 7}}, {kSmall, {9, 1}}};
  for (const std::uint64_t size :
       {1U, 122U, 123U, 124U, 511U, 512U, 4096U, 4219U, 4220U, 100'000U}) {
    extents.push_back({kLarge, {end - size, size}});
  }
  ExpectBytes(extents);
}

TEST_P(StoreConformanceTest, AnEmptyRangeGivesAnEmptySpan) {
  const std::uint64_t end = object(kLarge).size();
  ExpectBytes({{kLarge, {0, 0}}, {kLarge, {77, 0}}, {kLarge, {end, 0}}, {kEmpty, {0, 0}}});
}

TEST_P(StoreConformanceTest, ARangePastTheEndIsOutOfRangeAndNamesTheSize) {
  const std::uint64_t end = object(kLarge).size();
  const std::uint64_t huge = ~std::uint64_t{0} - 4096;
  for (const ByteRange range : {ByteRange{end - 1, 2}, ByteRange{end, 1}, ByteRange{end + 1, 0},
                                ByteRange{end + 5000, 10}, ByteRange{huge, 4}}) {
    const Result<std::string> bytes = ReadOne({kLarge, range});
    ASSERT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.status().code(), StatusCode::kOutOfRange) << bytes.status().ToString();
    EXPECT_THAT(std::string(bytes.status().message()),
                HasSubstr("object has " + std::to_string(end) + " bytes"));
  }
}

TEST_P(StoreConformanceTest, AnUnknownObjectIsNotFound) {
  for (const ByteRange range : {ByteRange{8, 4}, ByteRange{8, 0}}) {
    const Result<std::string> bytes = ReadOne({kUnknown, range});
    ASSERT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.status().code(), StatusCode::kNotFound);
    const std::string end = std::to_string(range.end());
    EXPECT_EQ(bytes.status().message(), "reading object 99 bytes [8, " + end + "): no such object");
  }
}

TEST_P(StoreConformanceTest, OneBadRequestDoesNotTouchItsNeighbours) {
  const std::vector<ReadAnswer> answers =
      ReadAll(store(), {{kSmall, {0, 4}}, {kUnknown, {0, 4}}, {kSmall, {8, 4}}, {kSmall, {4, 4}}},
              {}, made_->pump());
  EXPECT_EQ(answers[0].bytes, object(kSmall).substr(0, 4));
  EXPECT_EQ(answers[1].status.code(), StatusCode::kNotFound);
  EXPECT_EQ(answers[2].status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(answers[3].bytes, object(kSmall).substr(4, 4));
}

TEST_P(StoreConformanceTest, WhatIsReadAtOnceIsRight) {
  ExpectBytes({{kLarge, {0, 1}}, {kSmall, {0, 1}}});  // so that files are open
  const std::vector<Extent> extents = {
      {kLarge, {4097, 5000}},       {kSmall, {3, 7}},  {kLarge, {0, 1}}, {ObjectId{99}, {0, 10}},
      {kLarge, {100'000, 200'000}}, {kLarge, {7, 100}}};
  std::vector<std::string> got;
  std::vector<NowRead> reads;
  for (const Extent& extent : extents) got.emplace_back(extent.range.size, '\0');
  for (std::size_t i = 0; i < extents.size(); ++i) {
    reads.push_back({.extent = extents[i], .dst = std::as_writable_bytes(std::span(got[i]))});
  }
  reads.back().dst = {};
  const std::uint64_t before = store().stats().reads;
  store().ReadAllNow(reads);
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (reads[i].answer != ReadNowAnswer::kRead) continue;
    ++count;
    EXPECT_TRUE(got[i] == Expected(extents[i])) << i;
  }
  EXPECT_EQ(store().stats().reads, before + count);
  EXPECT_NE(reads[3].answer, ReadNowAnswer::kRead) << "there is no such object";
  EXPECT_NE(reads.back().answer, ReadNowAnswer::kRead) << "it is passed over";
}

TEST_P(StoreConformanceTest, NoRequestsAreNoWork) {
  store().Read({}, {});
  EXPECT_EQ(store().stats().reads, 0U);
}

TEST_P(StoreConformanceTest, ReadsAreCancelledOnceStopWasRequested) {
  std::stop_source stop;
  stop.request_stop();
  for (const ByteRange range : {ByteRange{0, 4096}, ByteRange{0, 0}}) {
    const Result<std::string> bytes = ReadOne({kLarge, range}, stop.get_token());
    ASSERT_FALSE(bytes.ok());
    EXPECT_EQ(bytes.status().code(), StatusCode::kCancelled);
    EXPECT_THAT(std::string(bytes.status().message()), HasSubstr("reading "));
  }
  ExpectBytes({{kLarge, {0, 4096}}});  // The store itself still works.
}

TEST_P(StoreConformanceTest, StopWhileReadingEndsEveryRequestOnceWithBytesOrCancelled) {
  std::stop_source stop;
  std::vector<Extent> extents;
  for (std::uint64_t i = 0; i < 300; ++i) extents.push_back({kLarge, {i * 4000, 4000}});
  std::jthread stopper([&stop] { stop.request_stop(); });
  const std::vector<ReadAnswer> answers =
      ReadAll(store(), extents, stop.get_token(), made_->pump());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    EXPECT_EQ(answers[i].times, 1);
    if (answers[i].status.ok()) {
      EXPECT_TRUE(answers[i].bytes == Expected(extents[i]));
    } else {
      EXPECT_EQ(answers[i].status.code(), StatusCode::kCancelled);
    }
  }
}

TEST_P(StoreConformanceTest, ThreadsThatReadAtOnceEachGetTheirOwnBytes) {
  constexpr int kThreads = 4;
  constexpr int kReads = 64;
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      Prng prng(static_cast<std::uint64_t>(t), 0, RandomStream::kOrder);
      for (int batch = 0; batch < 4; ++batch) {
        std::vector<Extent> extents;
        for (int i = 0; i < kReads; ++i) {
          const std::uint64_t size = prng.Below(20'000);
          extents.push_back({kLarge, {prng.Below(object(kLarge).size() - size), size}});
        }
        ExpectBytes(extents);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(store().stats().reads, std::uint64_t{kThreads} * 4 * kReads);
  EXPECT_EQ(store().stats().failures, 0U);
}

TEST_P(StoreConformanceTest, ARequestMayBeMadeFromTheAnswerOfAnother) {
  const AlignedBuffer first(store().BufferBytes({0, 4}));
  const AlignedBuffer second(store().BufferBytes({4, 6}));
  std::atomic<bool> done = false;
  std::string bytes;
  ByteStore& reader = store();
  const auto take = [&](const Result<std::span<std::byte>>& result) {
    if (result.ok()) {
      bytes.assign(reinterpret_cast<const char*>(result.value().data()), result.value().size());
    }
    done = true;
    done.notify_all();
  };
  std::vector<ReadRequest> requests;
  requests.push_back(
      {{kSmall, {0, 4}}, first.bytes(), [&](const Result<std::span<std::byte>>& /*result*/) {
         std::vector<ReadRequest> next;
         next.push_back({{kSmall, {4, 6}}, second.bytes(), take});
         reader.Read(std::move(next), {});
       }});
  reader.Read(std::move(requests), {});
  if (const auto pump = made_->pump(); pump != nullptr) {
    while (!done) pump();
  }
  done.wait(false);
  EXPECT_EQ(bytes, object(kSmall).substr(4, 6));
}

TEST_P(StoreConformanceTest, TheDestructorWaitsUntilEveryAnswerWasGiven) {
  constexpr std::uint64_t kReads = 100;
  std::vector<AlignedBuffer> buffers;
  std::vector<ReadRequest> requests;
  std::atomic<std::uint64_t> answers = 0;
  std::atomic<std::uint64_t> right = 0;
  for (std::uint64_t i = 0; i < kReads; ++i) {
    const Extent extent = {kLarge, {i * 5000, 5000}};
    buffers.emplace_back(store().BufferBytes(extent.range));
    requests.push_back(
        {extent, buffers.back().bytes(),
         [&, expected = Expected(extent)](const Result<std::span<std::byte>>& result) {
           ++answers;
           if (!result.ok()) return;
           const std::string_view bytes(reinterpret_cast<const char*>(result.value().data()),
                                        result.value().size());
           if (bytes == expected) ++right;
         }});
  }
  store().Read(std::move(requests), {});
  made_->DestroyStore();
  EXPECT_EQ(answers, kReads);
  EXPECT_EQ(right, kReads);
}

TEST_P(StoreConformanceTest, StatsAddUp) {
  EXPECT_FALSE(store().stats().name.empty());
  ExpectBytes({{kLarge, {1, 1000}}, {kLarge, {0, 8192}}, {kSmall, {0, 0}}});
  EXPECT_FALSE(ReadOne({kUnknown, {0, 1}}).ok());
  EXPECT_FALSE(ReadOne({kSmall, {0, 11}}).ok());
  const StoreStats stats = store().stats();
  EXPECT_EQ(stats.reads, 5U);
  EXPECT_EQ(stats.failures, 2U);
  EXPECT_EQ(stats.bytes, 9192U);
  EXPECT_EQ(stats.retries, 0U);
}

}  // namespace headrace
