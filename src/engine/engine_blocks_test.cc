// What the engine does with block reads, one claim at a time, in virtual time.

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "engine/testing/lane_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Samples of 100 bytes, 28 apart, in one object, with checksums; cells of 64 bytes, so two a
// sample.
class EngineBlocksTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSampleBytes = 100;
  static constexpr std::uint64_t kStride = 128;

  EngineBlocksTest() {
    index_.samples = 16;
    index_.columns.resize(1);
    index_.objects.resize(1);
    std::string& bytes = index_.objects[0];
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      bytes.resize(i * kStride, '.');
      Prng payload(i, 0, RandomStream::kPack);
      while (bytes.size() < i * kStride + kSampleBytes) {
        bytes.push_back(static_cast<char>(payload.Next32()));
      }
      index_.columns[0].extents.push_back({ObjectId{0}, {i * kStride, kSampleBytes}});
      index_.columns[0].checksums.push_back(
          Hash64(std::as_bytes(std::span(bytes).last(kSampleBytes))));
    }
    index_.columns[0].info = {.name = "bytes", .has_checksums = true};
    index_.infos.push_back(index_.columns[0].info);
    stored_ = bytes;
    schema_ = {{.name = "bytes", .codec = MakeBytesCodec(), .ragged = true}};
  }

  // Delivers samples of one block read each, in one step.
  static void Deliver(Step& step, std::uint64_t number, const std::vector<std::uint64_t>& samples) {
    for (const std::uint64_t sample : samples) {
      step.deliveries.push_back({.sample = SampleId{sample},
                                 .slot = static_cast<std::uint32_t>(step.deliveries.size()),
                                 .block_read = number});
    }
  }

  // Runs a plan to its end; the results are in ids_, reads_ and stats_.
  Status Run(std::vector<Step> plan, const EngineOptions& options = {}) {
    for (std::size_t i = 0; i < plan.size(); ++i) plan[i].step = i;
    SimLoop loop;
    MemoryStore bytes({{ObjectId{0}, stored_}});
    SimStore store(loop, bytes, [&](const Extent& extent) {
      reads_.push_back(extent.range);
      return decide_(extent);
    });
    SimExecutor executor(loop, 2, [](std::uint64_t) { return 1000; });
    SimSink sink;
    Engine engine({.index = &index_,
                   .schema = schema_,
                   .store = &store,
                   .executor = &executor,
                   .clock = &loop.clock(),
                   .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                   .staging = BufferPool::Make(kMiB),
                   .residents = residents_,
                   .pinned_blocks = pinned_blocks_},
                  options, std::make_unique<ListedSteps>(std::move(plan)));
    std::function<void()> consume = [&] {
      if (sink.ready.empty()) {
        if (sink.end.has_value()) return;
        sink.wake = [&] { loop.After(0, consume); };
        engine.OnWaiting();
        return;
      }
      Check(*sink.ready.front());
      times_ns_.push_back(loop.clock().NowNanos());
      sink.ready.pop_front();
      engine.OnTaken();
      loop.After(0, consume);
    };
    engine.Start();
    consume();
    EXPECT_TRUE(loop.RunUntilIdle(1'000'000));
    stats_ = engine.stats();
    engine.Stop();
    EXPECT_TRUE(loop.RunUntilIdle(1'000'000));
    engine.Close();
    EXPECT_EQ(residents_ == nullptr ? 0 : residents_->stats().used_units, 0);
    return sink.end.value_or(Status(StatusCode::kInternal, "stuck"));
  }

  [[nodiscard]] std::string LabelBytes(SampleId sample) const {
    const std::int64_t& label = index_.labels.at(Raw(sample));
    return {reinterpret_cast<const char*>(&label), sizeof label};
  }

  void Check(const Batch& batch) {
    ids_.emplace_back();
    for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
      ids_.back().push_back(Raw(batch.samples[slot]));
      const std::span<std::byte> row = batch.row(schema_, 0, slot);
      const std::string bytes(reinterpret_cast<const char*>(row.data()), row.size());
      EXPECT_EQ(bytes, schema_[0].is_inline() ? LabelBytes(batch.samples[slot])
                                              : index_.Payload(0, batch.samples[slot]));
    }
  }

  std::vector<std::int64_t> times_ns_;  // when each batch was taken
  TableIndex index_;
  std::string stored_;
  std::vector<BatchField> schema_;
  std::function<SimRead(const Extent&)> decide_ = [](const Extent&) { return SimRead{}; };
  std::shared_ptr<CellPool> residents_ = CellPool::Make(100, 64).value();
  std::shared_ptr<PinnedBlocks> pinned_blocks_;
  std::vector<std::vector<std::uint64_t>> ids_;  // delivered, by batch
  std::vector<ByteRange> reads_;
  EngineStats stats_;
};

// Copies, but from one piece of memory; notes how much scratch memory it is left, by sample.
class NotingCodec final : public FieldCodec {
 public:
  using Left = std::map<std::uint64_t, std::uint64_t>;
  explicit NotingCodec(Left& left) : left_(left) {}

  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return encoded_bytes;
  }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& key,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    left_[Raw(key.sample)] = limit.bytes_max;
    std::memcpy(row.data(), encoded.data(), row.size());
    return Status();
  }

 private:
  Left& left_;
};

// Runs tasks when told to.
class TasksByHand final : public Executor {
 public:
  void Submit(std::uint64_t /*deadline*/, Task task) override { tasks_.push_back(std::move(task)); }
  [[nodiscard]] int concurrency() const override { return 1; }
  void RunAll() {
    while (!tasks_.empty()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
};

// Answers nothing until a stop is requested; then, on the thread that does so, all of it.
class AnswersAtStop final : public ByteStore {
 public:
  AnswersAtStop(ByteStore& bytes, std::function<void()> answered)
      : bytes_(bytes), answered_(std::move(answered)) {}

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override {
    held_.push_back(std::move(requests));
    at_stop_.emplace(std::move(stop), [this] {
      while (!held_.empty()) {
        bytes_.Read(std::move(held_.front()), {});
        held_.pop_front();
      }
      answered_();
    });
  }
  [[nodiscard]] StoreStats stats() const override { return {}; }

 private:
  ByteStore& bytes_;
  const std::function<void()> answered_;
  std::deque<std::vector<ReadRequest>> held_;
  std::optional<std::stop_callback<std::function<void()>>> at_stop_;
};

BlockRead Whole(std::uint64_t number, std::uint64_t first, std::uint32_t count) {
  return {.number = number, .first = SampleId{first}, .count = count};
}

TEST_F(EngineBlocksTest, ABlockIsOneReadAndItsSamplesComeWhenThePlanSays) {
  std::vector<Step> plan(3);
  plan[0].reads = {Whole(0, 4, 4), Whole(1, 0, 4)};
  Deliver(plan[0], 0, {7});
  Deliver(plan[1], 1, {3, 0});
  Deliver(plan[1], 0, {5, 4});
  Deliver(plan[2], 0, {6});
  Deliver(plan[2], 1, {1, 2});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(7), ElementsAre(3, 0, 5, 4), ElementsAre(6, 1, 2)));
  EXPECT_THAT(reads_, ElementsAre(ByteRange{512, 484}, ByteRange{0, 484}));
  EXPECT_EQ(stats_.blocks.reads, 2);
  EXPECT_EQ(stats_.blocks.bytes, 968);
  EXPECT_EQ(stats_.read_bytes, 968);
  EXPECT_EQ(stats_.blocks.reread_bytes, 0);
  EXPECT_EQ(stats_.blocks.kept_bytes, 800);
  EXPECT_EQ(stats_.lanes[0].sample_bytes, 800);
  EXPECT_EQ(stats_.resident.used_units_peak, 16);
}

TEST_F(EngineBlocksTest, AStepWaitsForReadsThatAreDueWhetherItNeedsThemOrNot) {
  constexpr std::int64_t kLateNs = 5'000'000;
  for (const bool fails : {false, true}) {
    times_ns_.clear();
    decide_ = [&](const Extent& extent) {
      SimRead read{.delay_ns = extent.range.offset == 0 ? 0 : kLateNs};
      if (fails && extent.range.offset != 0) read.error = Status(StatusCode::kUnavailable, "gone");
      return read;
    };
    std::vector<Step> plan(3);
    plan[0].reads = {Whole(0, 0, 4), Whole(1, 4, 2)};
    Deliver(plan[0], 0, {2, 1});
    Deliver(plan[1], 0, {3});
    plan[1].reads_due = 2;
    Deliver(plan[2], 0, {0});
    Deliver(plan[2], 1, {4, 5});
    EXPECT_EQ(Run(plan).ok(), !fails);
    ASSERT_EQ(times_ns_.size(), fails ? 2 : 3);
    EXPECT_LT(times_ns_[0], kLateNs);
    EXPECT_GE(times_ns_[1], kLateNs);
    EXPECT_GE(stats_.lanes[0].stall_ns[static_cast<std::size_t>(StallCause::kStorage)],
              kLateNs / 2);
  }
}

// Tasks that see the request to stop leave their samples as they are.
TEST_F(EngineBlocksTest, WhatAStopCutShortIsNotHandedOver) {
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {0, 1, 2, 3});
  SimLoop loop;
  TasksByHand executor;
  MemoryStore bytes({{ObjectId{0}, stored_}});
  AnswersAtStop store(bytes, [&] { executor.RunAll(); });
  SimSink sink;
  Engine engine({.index = &index_,
                 .schema = schema_,
                 .store = &store,
                 .executor = &executor,
                 .clock = &loop.clock(),
                 .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                 .staging = BufferPool::Make(kMiB),
                 .residents = residents_},
                {}, std::make_unique<ListedSteps>(std::move(plan)));
  engine.Start();
  executor.RunAll();
  EXPECT_EQ(engine.stats().reads_in_flight, 1);
  engine.Stop();
  executor.RunAll();
  engine.Close();
  EXPECT_THAT(sink.ready, IsEmpty());
  EXPECT_EQ(residents_->stats().used_units, 0);
}

TEST_F(EngineBlocksTest, LimitsOfBlockReadsAreTheirOwn) {
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {0, 1, 2, 3});
  EXPECT_TRUE(Run(plan, {.coalesce_bytes_max = 1, .block_read_bytes_max = 228}).ok());
  EXPECT_THAT(reads_, ElementsAre(ByteRange{0, 228}, ByteRange{256, 228}));
  reads_.clear();
  EXPECT_TRUE(Run(plan, {.coalesce_gap_bytes = 1000, .block_gap_bytes = 27}).ok());
  EXPECT_EQ(reads_.size(), 4);
}

TEST_F(EngineBlocksTest, OfARunThatIsKeptInPartOnlyThatIsReadAndTakesCells) {
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 2, 10)};
  plan[0].reads[0].kept = {0, 1, 8};
  Deliver(plan[0], 0, {10, 2, 3});
  EXPECT_TRUE(Run(plan, {.block_gap_bytes = 100}).ok());
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(10, 2, 3)));
  EXPECT_THAT(reads_, ElementsAre(ByteRange{256, 228}, ByteRange{1280, 100}));
  EXPECT_EQ(stats_.resident.used_units_peak, 6);
}

TEST_F(EngineBlocksTest, AReadWithoutRoomWaitsForDeliveriesOfItsOwnStep) {
  residents_ = CellPool::Make(8, 64).value();
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4), Whole(1, 4, 2), Whole(2, 6, 2)};
  Deliver(plan[0], 0, {0, 1, 2, 3});
  Deliver(plan[0], 1, {4, 5});
  Deliver(plan[0], 2, {6, 7});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)));
  EXPECT_EQ(stats_.resident.used_units_peak, 8);
}

TEST_F(EngineBlocksTest, WhatIsReleasedMakesRoomBeforeAndAfterItIsRead) {
  residents_ = CellPool::Make(8, 64).value();
  std::vector<Step> plan(3);
  plan[0].reads = {Whole(0, 0, 4)};
  plan[0].releases = {{0, SampleId{1}}};
  Deliver(plan[0], 0, {0});
  plan[1].reads = {Whole(1, 8, 2)};
  plan[1].releases = {{0, SampleId{2}}};
  Deliver(plan[1], 0, {3});
  plan[2].releases = {{1, SampleId{8}}};
  Deliver(plan[2], 1, {9});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(0), ElementsAre(3), ElementsAre(9)));
}

TEST_F(EngineBlocksTest, AStepMayReadAndDeliverNothing) {
  std::vector<Step> plan(3);
  plan[0].reads = {Whole(0, 0, 2)};
  plan[1].releases = {{0, SampleId{0}}};
  Deliver(plan[2], 0, {1});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(ids_, ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(1)));
}

TEST_F(EngineBlocksTest, WhatIsAskedForLiesInTheIndexAndWaitsForNoRead) {
  schema_ = {{.name = "label", .index_field = 1, .dtype = DType::kInt64, .row_bytes = 8}};
  index_.infos.push_back(
      {.name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true});
  for (std::uint64_t i = 0; i < index_.samples; ++i) {
    index_.labels.push_back(static_cast<std::int64_t>(100 + i));
  }
  const std::shared_ptr<CellPool> cells = residents_;
  for (const bool has_cells : {true, false}) {
    residents_ = has_cells ? cells : nullptr;
    ids_.clear();
    std::vector<Step> plan(3);
    plan[0].reads = {Whole(0, 0, 4), Whole(1, 4, 2)};
    Deliver(plan[0], 0, {2, 1});
    plan[1].reads_due = 2;
    plan[1].releases = {{.block_read = 0, .sample = SampleId{3}}};
    Deliver(plan[1], 1, {5});
    Deliver(plan[2], kNoBlockRead, {9});
    Deliver(plan[2], 0, {0});
    EXPECT_TRUE(Run(plan).ok());
    EXPECT_THAT(ids_, ElementsAre(ElementsAre(2, 1), ElementsAre(5), ElementsAre(9, 0)));
    EXPECT_THAT(reads_, IsEmpty());
    EXPECT_EQ(stats_.blocks.reads, 0);
  }
}

TEST_F(EngineBlocksTest, SamplesWithoutBytesComeAsOthersDo) {
  for (const std::size_t i : {1U, 2U, 8U, 9U, 10U, 11U})
    index_.columns[0].extents[i].range.size = 0;
  index_.columns[0].checksums.clear();
  std::vector<Step> plan(2);
  plan[0].reads = {Whole(0, 0, 4), Whole(1, 8, 4)};
  Deliver(plan[0], 0, {2, 3});
  Deliver(plan[0], 1, {9, 11});
  plan[1].reads_due = 2;
  Deliver(plan[1], 0, {0, 1});
  Deliver(plan[1], 1, {8, 10});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(2, 3, 9, 11), ElementsAre(0, 1, 8, 10)));
}

TEST_F(EngineBlocksTest, ABlockReadThatFailsIsTriedAgainSampleBySample) {
  decide_ = [](const Extent& extent) {
    SimRead read;
    if (extent.range.offset <= 256 && extent.range.end() > 256) {
      read.error = Status(StatusCode::kDataLoss, "bad sector");
    }
    return read;
  };
  std::vector<Step> plan(2);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {3, 1});
  Deliver(plan[1], 0, {0, 2});
  const Status status = Run(plan);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 0 step 1 sample 2 (a): bad sector"));
  EXPECT_THAT(ids_, ElementsAre(ElementsAre(3, 1)));  // The others are not lost with it.
  EXPECT_THAT(reads_, ElementsAre(ByteRange{0, 484}, ByteRange{0, 100}, ByteRange{128, 100},
                                  ByteRange{256, 100}, ByteRange{384, 100}));
  ids_.clear();
  EXPECT_TRUE(Run(plan, {.on_error = OnError::kSubstitute}).ok());
  EXPECT_EQ(stats_.substituted, 1);
  EXPECT_EQ(Raw(stats_.substitutions[0].wanted), 2);
  EXPECT_EQ(ids_[1][1], Raw(stats_.substitutions[0].given));
}

TEST_F(EngineBlocksTest, ADamagedSampleIsReportedWhenItIsDeliveredAndNotWhenItIsReleased) {
  stored_[2 * kStride] ^= 1;
  std::vector<Step> plan(2);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {3, 1, 0});
  plan[1].releases = {{0, SampleId{2}}};
  EXPECT_TRUE(Run(plan).ok());
  plan[1].releases = {};
  Deliver(plan[1], 0, {2});
  const Status status = Run(plan);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 1 sample 2 (a): field bytes: its "));
}

TEST_F(EngineBlocksTest, WhatWasResidentBeforeARestartIsCountedSeparately) {
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4), Whole(1, 4, 2)};
  plan[0].reads[0].kept = {1};
  plan[0].reads[0].again = true;
  Deliver(plan[0], 0, {1});
  Deliver(plan[0], 1, {4, 5});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_EQ(stats_.blocks.reread_bytes, 100);
  EXPECT_EQ(stats_.blocks.bytes, 228);
  EXPECT_EQ(stats_.read_bytes, 328);
}

TEST_F(EngineBlocksTest, APlanThatNeedsMoreThanThereIsFailsAndDoesNotHang) {
  residents_ = CellPool::Make(7, 64).value();
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {0, 1, 2, 3});
  const Status status = Run(plan);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("take 8 cells of memory, the lane has 7"));
}

TEST_F(EngineBlocksTest, PinnedBlocksAreReadOnceInAllRunsAndTheOthersEveryTime) {
  pinned_blocks_ = std::make_shared<PinnedBlocks>(3 * BufferPool::ChargedBytes(484 + 4096));
  std::vector<Step> plan(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    plan[i].reads = {Whole(i, 4 * i, 4)};
    Deliver(plan[i], i, {4 * i + 2, 4 * i, 4 * i + 1, 4 * i + 3});
  }
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_EQ(reads_.size(), 4);
  EXPECT_EQ(stats_.blocks.pinned_bytes, 0);
  EXPECT_EQ(stats_.pinned.used_bytes, stats_.pinned.capacity_bytes);
  const auto first = ids_;
  ids_.clear();
  reads_.clear();
  plan[1].reads[0].kept = {0, 3};  // A part of a pinned block is as good.
  plan[1].deliveries.clear();
  Deliver(plan[1], 1, {7, 4});
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_THAT(reads_, ElementsAre(ByteRange{1536, 484}));
  EXPECT_EQ(stats_.blocks.pinned_reads, 3);
  EXPECT_EQ(stats_.blocks.pinned_bytes, 1000);
  EXPECT_EQ(stats_.blocks.bytes, 484);
  EXPECT_EQ(ids_[0], first[0]);
  EXPECT_THAT(ids_[1], ElementsAre(7, 4));
}

TEST_F(EngineBlocksTest, ABlockWithADamagedSampleIsNotPinned) {
  pinned_blocks_ = std::make_shared<PinnedBlocks>(kMiB);
  stored_[2 * kStride] ^= 1;
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {3, 2, 1, 0});
  EXPECT_FALSE(Run(plan).ok());
  EXPECT_EQ(pinned_blocks_->stats().used_bytes, 0);
  stored_ = index_.objects[0];  // Whoever reads it again may find it whole.
  EXPECT_TRUE(Run(plan).ok());
  EXPECT_NE(pinned_blocks_->stats().used_bytes, 0);
}

TEST_F(EngineBlocksTest, BytesThatOneSampleIsGatheredInAreNotChargedToTheNext) {
  NotingCodec::Left left;
  schema_[0].codec = std::make_shared<NotingCodec>(left);
  // Two cells that are not neighbours in this order are free, then only neighbours.
  const std::vector<std::uint32_t> units = {1, 1};
  std::vector<CellRun> cells(2);
  ASSERT_TRUE(residents_->Take(units, cells));
  for (const CellRun cell : cells) residents_->Release(cell);
  std::vector<Step> plan(1);
  plan[0].reads = {Whole(0, 0, 4)};
  Deliver(plan[0], 0, {0, 1, 2, 3});
  EXPECT_TRUE(Run(plan).ok());
  constexpr std::uint64_t kAll = ScratchLimit::kNone;
  EXPECT_EQ(left, (NotingCodec::Left{{0, kAll - kSampleBytes}, {1, kAll}, {2, kAll}, {3, kAll}}));
}

}  // namespace
}  // namespace headrace
