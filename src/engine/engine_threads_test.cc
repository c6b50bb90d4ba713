// The engine on real threads: what a simulation, which is one thread, cannot see.

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "store/memory_store.h"
#include "store/testing/gated_store.h"
#include "store/testing/slow_store.h"

namespace headrace {
namespace {

// `count` samples of one field of raw bytes, one after the other in one object, with labels.
void FillIndex(TableIndex& index, std::vector<BatchField>& schema, std::uint64_t count,
               std::uint64_t bytes_max) {
  index.samples = count;
  index.columns.resize(1);
  index.objects.resize(1);
  auto& column = index.columns[0];
  for (std::uint64_t i = 0; i < count; ++i) {
    Prng payload(i, 0, RandomStream::kPack);
    const std::uint64_t offset = index.objects[0].size();
    const std::uint64_t size = 1 + payload.Below(bytes_max);
    for (std::uint64_t b = 0; b < size; ++b) {
      index.objects[0].push_back(static_cast<char>(payload.Next32()));
    }
    column.extents.push_back({ObjectId{0}, {offset, size}});
    column.checksums.push_back(
        Hash64(std::as_bytes(std::span(index.objects[0]).subspan(offset, size))));
  }
  column.info = {.name = "bytes", .has_checksums = true};
  index.infos.push_back(column.info);
  schema.push_back({.name = "bytes", .codec = MakeBytesCodec(), .ragged = true});
}

// The consumer's end, on a thread of its own.
class WaitingSink final : public BatchSink {
 public:
  void OnBatch(std::shared_ptr<Batch> batch) override {
    MutexLock lock(mutex_);
    ready_.push_back(std::move(batch));
    changed_.NotifyAll();
  }
  void OnEnd(Status status) override {
    MutexLock lock(mutex_);
    end_ = std::move(status);
    changed_.NotifyAll();
  }

  // Null at the end.
  std::shared_ptr<Batch> Take() {
    MutexLock lock(mutex_);
    while (ready_.empty() && !end_.has_value()) changed_.Wait(mutex_);
    if (ready_.empty()) return nullptr;
    std::shared_ptr<Batch> batch = std::move(ready_.front());
    ready_.pop_front();
    return batch;
  }

  [[nodiscard]] Status end() const {
    MutexLock lock(mutex_);
    return end_.value_or(Status(StatusCode::kInternal, "not ended"));
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Batch>> ready_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);
};

// Answers on a thread of its own, and is still in Read() a while after that: until LetGo(), and
// then for as long as other threads need to get on, if nothing keeps them.
class LingeringStore final : public ByteStore {
 public:
  LingeringStore(ByteStore& bytes, bool may_read_now) : bytes_(bytes), may_(may_read_now) {}

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override {
    return bytes_.BufferBytes(range);
  }
  bool MayReadNow() override { return may_; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override {
    ++inside_;
    auto shared = std::make_shared<std::vector<ReadRequest>>(std::move(requests));
    answers_.Submit(0, [this, shared, stop] {
      bytes_.Read(std::move(*shared), stop);
      MutexLock lock(mutex_);
      answered_ = true;
      changed_.NotifyAll();
    });
    {
      MutexLock lock(mutex_);
      while (!let_go_) changed_.Wait(mutex_);
    }
    for (int i = 0; i < kYields && !gone_; ++i) std::this_thread::yield();
    --inside_;
  }
  [[nodiscard]] StoreStats stats() const override { return {}; }

  void WaitForAnswer() {
    MutexLock lock(mutex_);
    while (!answered_) changed_.Wait(mutex_);
  }
  void LetGo() {
    MutexLock lock(mutex_);
    let_go_ = true;
    changed_.NotifyAll();
  }
  // Threads in Read(), when nobody may be there any more.
  int Leftover() {
    const int inside = inside_;
    gone_ = true;
    return inside;
  }

 private:
  static constexpr int kYields = 2'000;

  ByteStore& bytes_;
  const bool may_;
  std::atomic<int> inside_ = 0;
  std::atomic<bool> gone_ = false;
  Mutex mutex_;
  CondVar changed_;
  bool answered_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool let_go_ HEADRACE_GUARDED_BY(mutex_) = false;
  TestExecutor answers_{1};  // Last: its thread uses the others.
};

// Whether the store is asked to read at once first, by a task; whether the plan reads a block.
class EngineCloseTest : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(EngineCloseTest, CloseWaitsForTheStoreToReturnFromReadAlsoAfterItsAnswer) {
  const auto [read_now, blocks] = GetParam();
  TableIndex index;
  std::vector<BatchField> schema;
  // Small samples that are not in the page cache go back to the machine; these a task reads.
  FillIndex(index, schema, 1, blocks ? 100 : 400'000);
  MemoryStore bytes({{ObjectId{0}, index.objects[0]}});
  LingeringStore store(bytes, read_now);
  TestExecutor executor(3);
  MonotonicClock clock;
  WaitingSink sink;
  std::vector<Step> plan(1);
  plan[0].ends_epoch = true;
  if (blocks) plan[0].reads = {{.first = SampleId{0}, .count = 1}};
  plan[0].deliveries = {{.block_read = blocks ? 0 : kNoBlockRead}};
  Engine engine({.index = &index,
                 .schema = schema,
                 .store = &store,
                 .executor = &executor,
                 .clock = &clock,
                 .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                 .staging = BufferPool::Make(kMiB),
                 .residents = CellPool::Make(16, 64).value()},
                {}, std::make_unique<ListedSteps>(plan));
  engine.Start();
  store.WaitForAnswer();
  // A task in Read() does not keep the machine from finishing all there is to do.
  if (read_now) {
    EXPECT_NE(sink.Take(), nullptr);
    EXPECT_EQ(sink.Take(), nullptr);
  }
  store.LetGo();
  engine.Close();
  EXPECT_EQ(store.Leftover(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineCloseTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST(EngineThreadsTest, CloseWithinATimeSaysThatReadsAreOutAndMayBeCalledAgain) {
  TableIndex index;
  std::vector<BatchField> schema;
  FillIndex(index, schema, 1, 100);
  GatedStore store(std::make_unique<MemoryStore>(
      std::unordered_map<ObjectId, std::string>{{ObjectId{0}, index.objects[0]}}));
  TestExecutor executor(1);
  MonotonicClock clock;
  WaitingSink sink;
  std::vector<Step> plan(1);
  plan[0].deliveries = {{}};
  Engine engine({.index = &index,
                 .schema = schema,
                 .store = &store,
                 .executor = &executor,
                 .clock = &clock,
                 .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                 .staging = BufferPool::Make(kMiB)},
                {}, std::make_unique<ListedSteps>(plan));
  engine.Start();
  while (store.waiting().empty()) std::this_thread::yield();
  EXPECT_FALSE(engine.Close(0));
  EXPECT_FALSE(engine.Close(kNsPerMs));
  EXPECT_EQ(engine.stats().reads_in_flight, 1U);
  store.ReleaseAll();
  EXPECT_TRUE(engine.Close());
  EXPECT_EQ(engine.stats().reads_in_flight, 0U);
  EXPECT_EQ(sink.end().code(), StatusCode::kInternal) << "it received an end";
}

// Takes batches and checks them byte by byte, up to `batches_max`. Returns how many there were.
std::size_t Consume(Engine& engine, WaitingSink& sink, const TableIndex& index,
                    std::span<const BatchField> schema, std::span<const Step> plan,
                    std::size_t batches_max) {
  std::size_t taken = 0;
  for (; taken < batches_max; ++taken) {
    engine.OnWaiting();
    const std::shared_ptr<Batch> batch = sink.Take();
    if (batch == nullptr) break;
    engine.OnTaken();
    const Step& step = plan[taken];
    EXPECT_EQ(batch->samples.size(), step.deliveries.size());
    for (std::size_t slot = 0; slot < step.deliveries.size(); ++slot) {
      EXPECT_EQ(batch->samples[slot], step.deliveries[slot].sample);
      const std::span<std::byte> row = batch->row(schema, 0, slot);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()),
                index.Payload(0, step.deliveries[slot].sample));
    }
  }
  return taken;
}

// Plans on threads that get into each other's way; stopped at some moment, memory shared with the
// engine that goes on.
TEST(EngineThreadsTest, BlockPlansAreDeliveredAndStopAtAnyMoment) {
  TableIndex index;
  std::vector<BatchField> schema;
  FillIndex(index, schema, 60, 2000);
  std::vector<std::uint32_t> units;
  for (const Extent& extent : index.columns[0].extents) {
    units.push_back(static_cast<std::uint32_t>((extent.range.size + 127) / 128));
  }
  MonotonicClock clock;
  const auto staging = BufferPool::Make(64 * kKiB);
  const auto batch_memory = BufferPool::Make(128 * kKiB);
  const auto pinned_blocks = std::make_shared<PinnedBlocks>(64 * kKiB);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x53u);
    BlockPlanMaker maker(units, random);
    const std::vector<Step> plan = maker.Make();
    const auto residents = CellPool::Make(maker.budget_units(), 128).value();
    std::size_t begin = 0;
    while (begin < plan.size()) {
      const std::vector<Step> steps = StepsFrom(plan, begin);
      TestExecutor answers(2);
      SlowStore store(std::make_unique<MemoryStore>(std::unordered_map<ObjectId, std::string>{
                          {ObjectId{0}, index.objects[0]}}),
                      answers, clock, [](const Extent&) { return 0; });
      TestExecutor executor(3);
      WaitingSink sink;
      Engine engine({.index = &index,
                     .schema = schema,
                     .store = &store,
                     .executor = &executor,
                     .clock = &clock,
                     .lanes = {{.sink = &sink, .batch_memory = batch_memory}},
                     .staging = staging,
                     .residents = residents,
                     .pinned_blocks = seed % 2 == 0 ? pinned_blocks : nullptr},
                    {.batches_max = 4, .block_read_bytes_max = 4 * kKiB, .decode_task_bytes = 1000},
                    std::make_unique<ListedSteps>(steps));
      engine.Start();
      const std::size_t wanted = seed % 3 == 0 ? steps.size() + 1 : 1 + random.Below(steps.size());
      const std::size_t taken = Consume(engine, sink, index, schema, steps, wanted);
      EXPECT_EQ(taken, std::min(wanted, steps.size())) << sink.end().ToString();
      if (HasFailure()) {
        engine.Close();
        return;
      }
      begin += taken;
      engine.Close();
      EXPECT_EQ(residents->stats().used_units, 0);
    }
    EXPECT_EQ(staging->stats().used_bytes, 0);
  }
}

}  // namespace
}  // namespace headrace
