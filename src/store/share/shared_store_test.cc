#include "store/share/shared_store.h"

#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/testing/test_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/memory_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/reader.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr ObjectId kData{1};
constexpr std::uint64_t kDataBytes = 1'000'000;

Extent InData(std::uint64_t offset, std::uint64_t size) { return {kData, {offset, size}}; }

class GivenClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t NowNanos() const override { return now_ns; }
  std::atomic<std::int64_t> now_ns = 0;
};

// A read that may end later.
class Asked {
 public:
  Asked(ByteStore& store, const Extent& extent, std::stop_token stop = {}, bool past_share = false)
      : buffer_(store.BufferBytes(extent.range)) {
    std::vector<ReadRequest> requests;
    requests.push_back({.extent = extent,
                        .buffer = buffer_.bytes(),
                        .done =
                            [this](const Result<std::span<std::byte>>& data) {
                              status_ = data.status();
                              if (data.ok()) {
                                bytes_.assign(reinterpret_cast<const char*>(data.value().data()),
                                              data.value().size());
                              }
                              ended_.count_down();
                            },
                        .past_share = past_share});
    store.Read(std::move(requests), std::move(stop));
  }
  // Waits for it.
  const std::string& bytes() {
    ended_.wait();
    EXPECT_TRUE(status_.ok()) << status_.ToString();
    return bytes_;
  }
  const Status& status() {
    ended_.wait();
    return status_;
  }

 private:
  AlignedBuffer buffer_;
  std::latch ended_{1};
  Status status_;
  std::string bytes_;
};

// Remembers where it read to last.
class SeenStore final : public ByteStore {
 public:
  SeenStore(std::unique_ptr<ByteStore> inner, std::span<std::byte>& seen)
      : inner_(std::move(inner)), seen_(seen) {}
  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override {
    return inner_->BufferBytes(range);
  }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override {
    seen_ = requests.back().buffer;
    inner_->Read(std::move(requests), std::move(stop));
  }
  [[nodiscard]] StoreStats stats() const override { return inner_->stats(); }

 private:
  const std::unique_ptr<ByteStore> inner_;
  std::span<std::byte>& seen_;
};

class SharedStoreTest : public testing::Test {
 protected:
  struct Job {
    std::unique_ptr<ByteStore> store;
    GatedStore* gate = nullptr;  // of its storage
  };

  void Open(std::uint64_t capacity_bytes) {
    share_ = std::make_shared<ReadShare>(ReadShareOptions{.capacity_bytes = capacity_bytes},
                                         std::make_unique<TestExecutor>(3), clock_);
  }
  Job Join(const std::string& dataset = "data") {
    if (share_ == nullptr) Open(4'000'000);
    auto memory =
        std::make_unique<MemoryStore>(std::unordered_map<ObjectId, std::string>{{kData, data_}});
    auto gate = std::make_unique<GatedStore>(std::make_unique<SeenStore>(std::move(memory), seen_));
    Job job{.gate = gate.get()};
    job.store = SharedStore::Make(std::move(gate), share_, dataset, 0);
    return job;
  }
  [[nodiscard]] std::string Bytes(const Extent& extent) const {
    return data_.substr(extent.range.offset, extent.range.size);
  }
  static void AwaitRead(const Job& job) {
    while (job.gate->waiting().empty()) std::this_thread::yield();
  }
  // Reads, and lets the job's storage read what it needs for that.
  std::string Read(Job& job, const Extent& extent) {
    Asked asked(*job.store, extent);
    job.gate->ReleaseAll();
    return asked.bytes();
  }

  const std::string data_ = RandomBytes(1, kDataBytes);
  GivenClock clock_;
  std::shared_ptr<ReadShare> share_;
  std::span<std::byte> seen_;  // memory of the last read of any storage
};

TEST_F(SharedStoreTest, WhatOneJobHasReadIsNotReadAgain) {
  Job a = Join();
  Job b = Join();
  const Extent block = InData(1000, 300'000);
  EXPECT_EQ(Read(a, block), Bytes(block));
  Asked asked(*b.store, InData(200'000, 70'000));
  EXPECT_THAT(b.gate->waiting(), IsEmpty());
  EXPECT_EQ(asked.bytes(), Bytes(InData(200'000, 70'000)));
  const StoreStats of_b = b.store->stats();
  EXPECT_EQ(of_b.reads, 1U);
  EXPECT_EQ(of_b.bytes, 70'000U);
  EXPECT_EQ(of_b.share_reads, 1U);
  EXPECT_EQ(of_b.share_bytes, 70'000U);
  EXPECT_EQ(a.store->stats().share_bytes, 0U);
}

TEST_F(SharedStoreTest, OnlyWhatIsAbsentIsRead) {
  Job a = Join();
  Job b = Join();
  Read(a, InData(100'000, 50'000));
  Read(a, InData(200'000, 50'000));
  Asked asked(*b.store, InData(120'000, 180'000));
  EXPECT_THAT(b.gate->waiting(), ElementsAre(InData(150'000, 50'000), InData(250'000, 50'000)));
  b.gate->ReleaseAll();
  EXPECT_EQ(asked.bytes(), Bytes(InData(120'000, 180'000)));
  EXPECT_EQ(b.store->stats().share_bytes, 80'000U);
}

TEST_F(SharedStoreTest, AReadInFlightIsWaitedFor) {
  Job a = Join();
  Job b = Join();
  Asked first(*a.store, InData(0, 100'000));
  Asked second(*b.store, InData(50'000, 100'000));
  EXPECT_THAT(b.gate->waiting(), ElementsAre(InData(100'000, 50'000)));
  b.gate->ReleaseAll();
  a.gate->ReleaseAll();
  EXPECT_EQ(first.bytes(), Bytes(InData(0, 100'000)));
  EXPECT_EQ(second.bytes(), Bytes(InData(50'000, 100'000)));
}

TEST_F(SharedStoreTest, AWaiterReadsWhatAnotherJobCouldNot) {
  Job a = Join();
  Job b = Join();
  Job c = Join();
  Asked first(*a.store, InData(0, 100'000));
  Asked second(*b.store, InData(0, 100'000));
  Asked third(*c.store, InData(0, 100'000));
  a.gate->Fail(0, Status(StatusCode::kNotFound, "no such object"));
  EXPECT_EQ(first.status().code(), StatusCode::kNotFound);
  while (b.gate->waiting().size() + c.gate->waiting().size() == 0) std::this_thread::yield();
  // One of them reads for both. Which one that is depends on which wakes first.
  Job& reader = b.gate->waiting().empty() ? c : b;
  reader.gate->ReleaseAll();
  EXPECT_EQ(second.bytes(), Bytes(InData(0, 100'000)));
  EXPECT_EQ(third.bytes(), Bytes(InData(0, 100'000)));
  EXPECT_EQ(b.gate->stats().bytes + c.gate->stats().bytes, 100'000U);
}

TEST_F(SharedStoreTest, AJobThatEndsWhileOthersWaitForItsReadsLosesThemNothing) {
  Job a = Join();
  Job b = Join();
  std::stop_source run;
  auto first = std::make_unique<Asked>(*a.store, InData(0, 100'000), run.get_token());
  Asked second(*b.store, InData(0, 100'000));
  run.request_stop();
  a.gate->ReleaseAll();  // Its store reads nothing once the run has ended.
  EXPECT_EQ(first->status().code(), StatusCode::kCancelled);
  a.store.reset();
  AwaitRead(b);
  b.gate->ReleaseAll();
  EXPECT_EQ(second.bytes(), Bytes(InData(0, 100'000)));
}

TEST_F(SharedStoreTest, ARunThatEndsDoesNotWaitForOtherJobs) {
  Job a = Join();
  Job b = Join();
  std::stop_source run;
  Asked first(*a.store, InData(0, 100'000));
  Asked second(*b.store, InData(0, 100'000), run.get_token());
  run.request_stop();
  EXPECT_EQ(second.status().code(), StatusCode::kCancelled);
  b.store.reset();
  a.gate->ReleaseAll();
  EXPECT_EQ(first.bytes(), Bytes(InData(0, 100'000)));
}

TEST_F(SharedStoreTest, AReadThatTakesTooLongIsNotWaitedFor) {
  Job a = Join();
  Job b = Join();
  Asked first(*a.store, InData(0, 100'000));
  Asked second(*b.store, InData(0, 100'000));
  clock_.now_ns += 10'000'000'001;
  AwaitRead(b);
  Asked third(*b.store, InData(0, 50'000));
  b.gate->ReleaseAll();
  EXPECT_EQ(second.bytes(), Bytes(InData(0, 100'000)));
  EXPECT_EQ(third.bytes(), Bytes(InData(0, 50'000)));
  a.gate->ReleaseAll();
  EXPECT_EQ(first.bytes(), Bytes(InData(0, 100'000)));
}

TEST_F(SharedStoreTest, DifferentDatasetsAreNotShared) {
  Job a = Join("one");
  Job b = Join("another");
  Read(a, InData(0, 1000));
  Asked asked(*b.store, InData(0, 1000));
  EXPECT_THAT(b.gate->waiting(), SizeIs(1));
  b.gate->ReleaseAll();
  EXPECT_EQ(asked.bytes(), Bytes(InData(0, 1000)));
}

TEST_F(SharedStoreTest, AFullShareIsReadPast) {
  Open(100'000);
  Job a = Join();
  Job b = Join();
  for (std::uint64_t at = 0; at < kDataBytes; at += 50'000) {
    EXPECT_EQ(Read(a, InData(at, 50'000)), Bytes(InData(at, 50'000)));
    EXPECT_LE(share_->used_bytes(), 100'000U);
  }
  EXPECT_EQ(Read(b, InData(0, kDataBytes)), data_) << "more than the share can hold";
}

TEST_F(SharedStoreTest, DamagedMemoryIsReadAgain) {
  Job a = Join();
  Job b = Join();
  Read(a, InData(0, 300'000));
  seen_[150'000] ^= std::byte{1};
  Asked undamaged(*b.store, InData(0, 100'000));
  EXPECT_EQ(undamaged.bytes(), Bytes(InData(0, 100'000)));
  EXPECT_THAT(b.gate->waiting(), IsEmpty());
  Asked damaged(*b.store, InData(149'000, 2000));
  AwaitRead(b);
  b.gate->ReleaseAll();
  EXPECT_EQ(damaged.bytes(), Bytes(InData(149'000, 2000)));
  EXPECT_EQ(b.gate->stats().bytes, 2000U);
}

TEST_F(SharedStoreTest, WhatIsWrongIsReadPastTheShare) {
  Job a = Join();
  Job b = Join();
  Read(a, InData(0, 100'000));
  Asked again(*b.store, InData(1000, 1000), {}, /*past_share=*/true);
  EXPECT_THAT(b.gate->waiting(), ElementsAre(InData(1000, 1000)));
  b.gate->ReleaseAll();
  EXPECT_EQ(again.bytes(), Bytes(InData(1000, 1000)));
  Asked dropped(*b.store, InData(0, 100'000));
  EXPECT_THAT(b.gate->waiting(), SizeIs(1)) << "what was wrong is no longer shared";
  b.gate->ReleaseAll();
  EXPECT_EQ(dropped.bytes(), Bytes(InData(0, 100'000)));
}

TEST_F(SharedStoreTest, ErrorsNameTheWholeRequest) {
  Job a = Join();
  Read(a, InData(999'000, 500));
  Asked asked(*a.store, InData(999'000, 2000));
  a.gate->ReleaseAll();
  AwaitRead(a);
  a.gate->ReleaseAll();
  EXPECT_EQ(asked.status().code(), StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(asked.status().message()), HasSubstr("bytes [999000, 1001000)"));
}

TEST_F(SharedStoreTest, TheSixtyFifthJobReadsAlone) {
  std::vector<Job> jobs(kShareJobsMax);
  for (Job& job : jobs) job = Join();
  Job alone = Join();
  EXPECT_TRUE(jobs.back().store->shares());
  EXPECT_FALSE(alone.store->shares());
  Read(jobs[0], InData(0, 1000));
  EXPECT_EQ(Read(alone, InData(0, 1000)), Bytes(InData(0, 1000)));
  EXPECT_EQ(alone.gate->stats().bytes, 1000U);
}

}  // namespace
}  // namespace headrace
