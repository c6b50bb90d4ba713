#include "fetch/source_conformance.h"

#include <mutex>
#include <stop_token>
#include <utility>

#include "base/memory/buffer_pool.h"

namespace headrace {

void SourceConformanceTest::SetUp() { made_ = GetParam().make(samples_); }

std::vector<std::unique_ptr<SourceConformanceTest::Read>> SourceConformanceTest::ReadAll(
    const std::vector<std::uint64_t>& numbers, const std::stop_token& stop) {
  const auto pool = BufferPool::Make(1 << 20);
  std::vector<std::unique_ptr<Read>> reads;
  std::vector<Fetch*> fetches;
  for (const std::uint64_t number : numbers) {
    Read& read = *reads.emplace_back(std::make_unique<Read>());
    made_->Aim(read.fetch, number);
    const std::size_t bytes = made_->source().BufferBytes(read.fetch);
    EXPECT_GE(bytes, samples_[number].size());
    read.fetch.buffer = *pool->Acquire(bytes);
    fetches.push_back(&read.fetch);
  }
  std::mutex mutex;  // Answers may come on any thread.
  std::size_t ended = 0;
  const FetchSource::Done done = [&](Fetch& fetch, Result<std::span<std::byte>> data) {
    const std::lock_guard lock(mutex);
    ++ended;
    for (const std::unique_ptr<Read>& read : reads) {
      if (&read->fetch != &fetch) continue;
      ++read->ended;
      read->status = data.status();
      if (!data.ok()) return;
      const std::span<std::byte> memory = fetch.memory();
      EXPECT_TRUE(data.value().data() >= memory.data() &&
                  data.value().data() + data.value().size() <= memory.data() + memory.size());
      read->bytes.assign(reinterpret_cast<const char*>(data.value().data()), data.value().size());
    }
  };
  made_->source().Read(fetches, stop, done);
  const auto all_ended = [&] {
    const std::lock_guard lock(mutex);
    return ended == reads.size();
  };
  while (!all_ended()) made_->Pump();
  made_->Pump();
  for (const std::unique_ptr<Read>& read : reads) EXPECT_EQ(read->ended, 1);
  return reads;
}

TEST_P(SourceConformanceTest, EachReadEndsOnceWithItsBytesInItsOwnMemory) {
  const auto reads = ReadAll({2, 0, 1, 0});
  EXPECT_EQ(reads[0]->bytes, samples_[2]) << reads[0]->status.message();
  EXPECT_EQ(reads[1]->bytes, samples_[0]) << reads[1]->status.message();
  EXPECT_EQ(reads[2]->bytes, samples_[1]) << reads[2]->status.message();
  EXPECT_EQ(reads[3]->bytes, samples_[0]) << reads[3]->status.message();
}

TEST_P(SourceConformanceTest, AReadThatFailsIsAnErrorOfItsOwn) {
  made_->Damage(1);
  const auto reads = ReadAll({0, 1, 2});
  EXPECT_EQ(reads[0]->bytes, samples_[0]);
  EXPECT_FALSE(reads[1]->status.ok());
  EXPECT_NE(reads[1]->status.code(), StatusCode::kCancelled);
  EXPECT_EQ(reads[2]->bytes, samples_[2]);
}

TEST_P(SourceConformanceTest, ReadsThatHaveNotBegunWhenAStopIsRequestedAreCancelled) {
  std::stop_source stop;
  stop.request_stop();
  for (const auto& read : ReadAll({0, 1}, stop.get_token())) {
    EXPECT_EQ(read->status.code(), StatusCode::kCancelled);
  }
}

TEST_P(SourceConformanceTest, WhatItReadsAtOnceIsTheSamplesBytes) {
  Fetch fetch;
  made_->Aim(fetch, 1);
  std::string bytes(samples_[1].size(), '?');
  const ReadNowAnswer answer =
      made_->source().ReadNow(fetch, std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(answer != ReadNowAnswer::kRead || bytes == samples_[1]);
}

}  // namespace headrace
