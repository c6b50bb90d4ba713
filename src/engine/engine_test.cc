// What the engine does with reads, cores and memory, one claim at a time, in virtual time.

#include "engine/engine.h"

#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>

#include "base/prng.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/testing/lane_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "plan/exact_order.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Machine {
  std::function<SimRead(const Extent&)> read = [](const Extent&) { return SimRead{}; };
  std::int64_t decode_ns = 0;  // of a task
  int cores = 4;
  std::int64_t think_ns = 0;                   // of the consumer, a batch
  bool hold = false;                           // the consumer keeps every batch
  bool warm = false;                           // reads are tried without a device first
  ReadNowAnswer found = ReadNowAnswer::kRead;  // what these tries find
  std::uint64_t staging_bytes = 64 * kMiB;
  std::uint64_t batch_bytes = 64 * kMiB;
};

// Samples of `sample_bytes`, `gap_bytes` apart, in one object; in order, in batches.
class EngineTest : public ::testing::Test {
 protected:
  void MakeDataset(std::uint64_t samples, std::uint64_t sample_bytes, std::uint64_t gap_bytes) {
    index_.samples = samples;
    index_.columns.resize(1);
    for (std::uint64_t i = 0; i < samples; ++i) {
      index_.columns[0].extents.push_back(
          {ObjectId{0}, {i * (sample_bytes + gap_bytes), sample_bytes}});
    }
    index_.objects = {std::string(samples * (sample_bytes + gap_bytes), 'x')};
    schema_ = {{.name = "bytes",
                .codec = MakeArrayCodec(sample_bytes),
                .shape = {sample_bytes},
                .row_bytes = sample_bytes}};
  }

  // Runs one epoch in order and returns how it ended; ended_ns_ and stats_ tell how it went.
  Status Run(const Machine& machine, std::uint64_t batch_size, const EngineOptions& options) {
    SimLoop loop;
    MemoryStore bytes({{ObjectId{0}, index_.objects[0]}});
    SimStore store(loop, bytes, [&](const Extent& extent) {
      reads_.push_back(extent.range);
      return machine.read(extent);
    });
    if (machine.warm) store.SetReadNow([] { return true; }, machine.found);
    SimExecutor executor(loop, machine.cores, [&](std::uint64_t) { return machine.decode_ns; });
    SimSink sink;
    Engine engine(
        {.index = &index_,
         .schema = schema_,
         .store = &store,
         .executor = &executor,
         .clock = &loop.clock(),
         .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(machine.batch_bytes)}},
         .staging = BufferPool::Make(machine.staging_bytes)},
        options,
        MakeExactOrder({.sample_count = index_.samples,
                        .batch_size = batch_size,
                        .shuffle = false,
                        .epochs = 1},
                       {})
            .value());
    std::vector<std::shared_ptr<Batch>> held;
    std::function<void()> consume = [&] {
      if (sink.ready.empty()) {
        if (sink.end.has_value()) return;
        sink.wake = [&] { loop.After(0, consume); };
        engine.OnWaiting();
        return;
      }
      beyond_budget_.push_back(sink.ready.front()->beyond_budget);
      if (machine.hold) held.push_back(sink.ready.front());
      sink.ready.pop_front();
      engine.OnTaken();
      loop.After(machine.think_ns, consume);
    };
    engine.Start();
    consume();
    EXPECT_TRUE(loop.RunUntilIdle(1'000'000));
    ended_ns_ = loop.now_ns();
    stats_ = engine.stats();
    reads_looked_ = store.reads_looked();
    engine.Stop();
    EXPECT_TRUE(loop.RunUntilIdle(1'000'000));
    engine.Close();
    return sink.end.value_or(Status(StatusCode::kInternal, "stuck"));
  }

  [[nodiscard]] std::int64_t stall_ns(StallCause cause) const {
    return stats_.lanes[0].stall_ns[static_cast<std::size_t>(cause)];
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  std::vector<ByteRange> reads_;
  std::uint64_t reads_looked_ = 0;
  std::vector<bool> beyond_budget_;  // of each batch
  std::int64_t ended_ns_ = 0;
  EngineStats stats_;
};

// Small samples are tried without memory, the others with it.
TEST_F(EngineTest, OnlyATryThatAskedThePageCacheKeepsTheReadFromAskingIt) {
  for (const std::uint64_t sample_bytes : {100U, 200'000U}) {
    index_ = TableIndex();
    MakeDataset(8, sample_bytes, 5000);
    for (const ReadNowAnswer found : {ReadNowAnswer::kNotHeld, ReadNowAnswer::kNotAsked}) {
      reads_.clear();
      EXPECT_TRUE(Run({.warm = true, .found = found}, 4, {.coalesce_gap_bytes = 0}).ok());
      EXPECT_EQ(reads_.size(), 8);
      EXPECT_EQ(stats_.reads, 8);
      EXPECT_EQ(reads_looked_, found == ReadNowAnswer::kNotHeld ? 8 : 0);
    }
  }
}

TEST_F(EngineTest, ExtentsOfAStepThatAreNearEachOtherAreOneRead) {
  MakeDataset(8, 100, 28);
  EXPECT_TRUE(Run({}, 4, {.coalesce_gap_bytes = 28}).ok());
  EXPECT_THAT(reads_, ElementsAre(ByteRange{0, 484}, ByteRange{512, 484}));
  EXPECT_EQ(stats_.reads, 2);
  EXPECT_EQ(stats_.read_bytes, 968);
  EXPECT_EQ(stats_.lanes[0].sample_bytes, 800);
}

TEST_F(EngineTest, ExtentsFurtherApartOrTooLargeTogetherAreReadsOfTheirOwn) {
  MakeDataset(4, 100, 28);
  EXPECT_TRUE(Run({}, 4, {.coalesce_gap_bytes = 27}).ok());
  EXPECT_EQ(reads_.size(), 4);
  reads_.clear();
  EXPECT_TRUE(Run({}, 4, {.coalesce_gap_bytes = 28, .coalesce_bytes_max = 228}).ok());
  EXPECT_THAT(reads_, ElementsAre(ByteRange{0, 228}, ByteRange{256, 228}));
}

TEST_F(EngineTest, AJoinedReadThatFailsIsReadAgainSampleBySample) {
  MakeDataset(4, 100, 0);
  Machine machine;
  machine.read = [](const Extent& extent) {
    SimRead read;
    if (extent.range.offset <= 200 && extent.range.end() > 200) {
      read.error = Status(StatusCode::kDataLoss, "bad sector");
    }
    return read;
  };
  const Status status = Run(machine, 4, {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("sample 2 (a): bad sector"));
  EXPECT_EQ(reads_.size(), 5);  // All at once, then each.
  reads_.clear();
  EXPECT_TRUE(Run(machine, 4, {.on_error = OnError::kSubstitute}).ok());
  EXPECT_EQ(stats_.substituted, 1);
  EXPECT_EQ(Raw(stats_.substitutions[0].wanted), 2);
}

TEST_F(EngineTest, WaitingForReadsIsAStallOfStorage) {
  MakeDataset(3, 100, 0);
  Machine machine;
  machine.read = [](const Extent&) { return SimRead{.delay_ns = 10 * kMs}; };
  EXPECT_TRUE(Run(machine, 1, {.reads_in_flight_max = 1, .coalesce_bytes_max = 1}).ok());
  EXPECT_EQ(stall_ns(StallCause::kStorage), 30 * kMs);
  EXPECT_EQ(stall_ns(StallCause::kDecode), 0);
  EXPECT_EQ(ended_ns_, 30 * kMs);
}

TEST_F(EngineTest, WaitingForCoresIsAStallOfDecode) {
  MakeDataset(3, 100, 0);
  EXPECT_TRUE(Run({.decode_ns = 10 * kMs, .cores = 1}, 3, {.decode_task_bytes = 1}).ok());
  EXPECT_EQ(stall_ns(StallCause::kDecode), 30 * kMs);
  // The task that plans the step takes as long: the waiting consumer plans nothing.
  EXPECT_EQ(stall_ns(StallCause::kStorage), 10 * kMs);
}

TEST_F(EngineTest, WaitingForCoresIsAStallOfDecodeAlsoWhereTasksReadWhatTheyDecode) {
  MakeDataset(60, 100, 20 * kKiB);
  const EngineOptions options = {.decode_task_bytes = 400};  // a fourth of what a task takes
  EXPECT_TRUE(Run({.decode_ns = 10 * kMs, .cores = 1, .warm = true}, 60, options).ok());
  EXPECT_EQ(stall_ns(StallCause::kDecode), 40 * kMs) << "four tasks of up to 16 samples";
  EXPECT_EQ(stall_ns(StallCause::kStorage), 10 * kMs) << "the task that plans the step";
}

TEST_F(EngineTest, WaitingForMemoryThatTheConsumerHoldsIsAStallOfTheConsumer) {
  MakeDataset(4, 4096, 0);
  Machine machine{.hold = true, .batch_bytes = 2 * kBufferAlignment};
  machine.read = [](const Extent&) { return SimRead{.delay_ns = 10 * kMs}; };
  EXPECT_TRUE(Run(machine, 1, {}).ok());
  EXPECT_EQ(stall_ns(StallCause::kStorage), 10 * kMs);
  EXPECT_EQ(stall_ns(StallCause::kConsumer), 20 * kMs);
  EXPECT_EQ(stats_.batch.beyond_count, 2);  // Of four batches two fit.
  EXPECT_EQ(stats_.batch.used_bytes_peak, 2 * 4096);
  EXPECT_EQ(stats_.batch.beyond_bytes_peak, 2 * 4096);
}

// The warning of such batches blames the consumer, who holds nothing here.
TEST_F(EngineTest, AStandInThatFindsNoRoomIsCountedAndNoFaultOfTheConsumer) {
  MakeDataset(2, 100'000, 0);
  schema_[0].codec = MakeBytesCodec();
  schema_[0].ragged = true;
  index_.columns[0].extents[0].range.size = 100;
  Machine machine{.batch_bytes = 4096};
  machine.read = [](const Extent& extent) {
    SimRead read{.delay_ns = 10 * kMs};
    if (extent.range.offset == 0) read.error = Status(StatusCode::kDataLoss, "bad sector");
    return read;
  };
  EXPECT_TRUE(Run(machine, 1, {.batches_max = 1, .on_error = OnError::kSubstitute}).ok());
  EXPECT_EQ(stats_.substituted, 1);
  EXPECT_EQ(stats_.batch.beyond_count, 2);  // The second is a batch too large for its memory.
  EXPECT_THAT(beyond_budget_, ElementsAre(false, true));
  EXPECT_EQ(stall_ns(StallCause::kStorage), 20 * kMs);
}

TEST_F(EngineTest, ReadsOverlapWithDecodingAndWithTheConsumer) {
  MakeDataset(100, 1000, 0);
  Machine machine{.decode_ns = kMs, .cores = 1, .think_ns = kMs};
  machine.read = [](const Extent&) { return SimRead{.delay_ns = 5 * kMs}; };
  EXPECT_TRUE(Run(machine, 1, {.coalesce_bytes_max = 1}).ok());
  // The core is the narrowest: a task a batch, and one for the machine whenever room is made.
  EXPECT_LE(ended_ns_, (2 * 100 + 20) * kMs);
}

TEST_F(EngineTest, GoesNoFurtherAheadThanItIsAllowed) {
  MakeDataset(100, 4096, 0);
  Machine machine{.think_ns = 1000 * kMs};
  machine.read = [](const Extent&) { return SimRead{.delay_ns = 10 * kMs}; };
  EXPECT_TRUE(Run(machine, 10, {.batches_max = 2, .coalesce_bytes_max = 1}).ok());
  EXPECT_LE(stats_.batch.used_bytes_peak, BufferPool::ChargedBytes(10 * kBufferAlignment) * 3);
  EXPECT_LE(stats_.staging.used_bytes_peak, 20 * BufferPool::ChargedBytes(2 * kBufferAlignment));
}

TEST_F(EngineTest, ASampleOrBatchLargerThanAllItsMemoryTakesMoreAndIsCounted) {
  MakeDataset(3, 100'000, 0);
  EXPECT_TRUE(Run({.staging_bytes = 65536}, 1, {}).ok());
  EXPECT_EQ(stats_.staging.beyond_count, 3);
  EXPECT_EQ(stats_.staging.beyond_bytes_peak, BufferPool::ChargedBytes(100'000 + 4096));
  EXPECT_TRUE(Run({.batch_bytes = 65536}, 1, {}).ok());
  EXPECT_EQ(stats_.batch.beyond_count, 3);
  EXPECT_EQ(stats_.batch.beyond_bytes_peak, 102'400);  // One at a time, in whole pages.
}

TEST_F(EngineTest, WhatIsWrongWithTheProcessReplacesNoSample) {
  MakeDataset(4, 100, 0);
  Machine machine;
  machine.read = [](const Extent&) {
    SimRead read;
    read.error = Status(StatusCode::kResourceExhausted, "too many open files");
    return read;
  };
  const Status status = Run(machine, 4, {.on_error = OnError::kSubstitute});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sample 0 (a): too many open files"));
}

// Rinas hands samples over in the order in which they arrive, so that a slow one holds up no batch.
// Fixed slots need not pay for that: with a few batches of look-ahead the device is never idle, and
// an epoch takes as long as its reads take through as many places, whatever the order.
TEST_F(EngineTest, FixedSlotsTakeNoMoreTimeThanHandingOverInOrderOfArrival) {
  constexpr std::uint64_t kArrivingSamples = 4096;
  constexpr std::uint32_t kDepth = 32;
  MakeDataset(kArrivingSamples, 512, 0);
  const auto draw = [](Prng& random) {  // A long tail: one in 50 takes ten times as long.
    const auto base = static_cast<std::int64_t>(kMs + random.Below(2 * kMs));
    return random.Below(50) == 0 ? 10 * base : base;
  };

  // In order of arrival: nothing but reads, through kDepth places.
  Prng arrival_random(1, 0, RandomStream::kOrder);
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> places;
  std::int64_t arrival_ns = 0;
  for (std::uint64_t i = 0; i < kArrivingSamples; ++i) {
    std::int64_t start_ns = 0;
    if (places.size() == kDepth) {
      start_ns = places.top();
      places.pop();
    }
    places.push(start_ns + draw(arrival_random));
    arrival_ns = std::max(arrival_ns, start_ns);
  }
  for (; !places.empty(); places.pop()) arrival_ns = std::max(arrival_ns, places.top());

  Prng random(1, 0, RandomStream::kOrder);
  Machine machine;
  machine.read = [&](const Extent&) { return SimRead{.delay_ns = draw(random)}; };
  EXPECT_TRUE(
      Run(machine, 64, {.batches_max = 8, .reads_in_flight_max = kDepth, .coalesce_bytes_max = 1})
          .ok());
  EXPECT_LE(static_cast<double>(ended_ns_), 1.01 * static_cast<double>(arrival_ns));
}

}  // namespace
}  // namespace headrace
