// The real engine under a virtual clock, as in engine_sim_test.cc, with plans that read blocks:
// every seed is another legal plan, with whole and partly kept runs, samples delivered soon, late
// or never, memory that just suffices, on another machine that fails in other ways.

#include <algorithm>
#include <memory>
#include <string>

#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "engine/testing/lane_world.h"
#include "engine/testing/sim_world.h"
#include "gtest/gtest.h"
#include "sim/sim_executor.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kBlocksSeeds = 3000;
#else
constexpr std::uint64_t kBlocksSeeds = 500;  // Slow builds look for other mistakes.
#endif

// Rows are the stored bytes, backwards: not a copy, so that it needs them in one piece.
class BackwardsCodec final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t encoded_bytes) const override {
    return encoded_bytes;
  }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    limit.bytes_needed = 0;
    std::reverse_copy(encoded.begin(), encoded.end(), row.begin());
    return Status();
  }
};

class BlocksWorld final : public SimWorld {
 public:
  explicit BlocksWorld(std::uint64_t seed) : SimWorld(seed, 0x52u) {
    MakeDataset();
    MakeMachine();
    MakePlan();
    options_.seed = seed;
    if (!index_.columns.empty() && random_.Below(2) == 0) MakeTiers();
  }

  // Runs to the end of the plan, with as many engines as the consumer's leaving makes necessary.
  void Run() {
    std::size_t begin = 0;
    while (!done_ && !::testing::Test::HasFailure()) begin = RunEngine(begin);
    if (residents_ == nullptr) return;
    EXPECT_EQ(residents_->stats().used_units, 0);
    EXPECT_EQ(staging_->stats().used_bytes + staging_->stats().beyond_bytes, 0);
  }

 private:
  struct Consumer {
    std::size_t next = 0;  // step of plan_
    std::uint64_t steps_until_leaving = 0;
    bool left = false;
    std::vector<std::shared_ptr<Batch>> held;
  };

  void MakeDataset() {
    index_.samples = 1 + random_.Below(80);
    index_.objects.resize(1 + random_.Below(4));
    index_.columns.resize(1 + random_.Below(3));
    fixed_bytes_ = 1 + random_.Below(1000);
    const bool large = random_.Below(8) == 0;
    const bool checksums = random_.Below(2) == 0;
    const bool in_order = random_.Below(2) == 0;
    for (std::size_t c = 0; c < index_.columns.size(); ++c) {
      index_.columns[c].info.name = "field" + std::to_string(c);
      MakeField(c);
    }
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      index_.labels.push_back(static_cast<std::int64_t>(1000 + i));
      for (std::size_t c = 0; c < index_.columns.size(); ++c) {
        std::uint64_t size = schema_[c].ragged ? random_.Below(3000) : fixed_bytes_;
        if (schema_[c].ragged && random_.Below(9) == 0) size = large ? 70000 : 0;
        const std::uint64_t object = in_order ? i * index_.objects.size() / index_.samples
                                              : random_.Below(index_.objects.size());
        AddPayload(c, i, object, size, /*gap_max=*/20000, checksums);
      }
    }
    Store(checksums, [this] { return random_.Below(index_.columns.size()); });
    AddLabel();
    store_bytes_ = std::make_unique<MemoryStore>(stored_);
  }

  void MakeField(std::size_t column) {
    BatchField field{.name = index_.columns[column].info.name, .index_field = column};
    switch (random_.Below(3)) {
      case 0:
        field.ragged = true;
        field.codec = MakeBytesCodec();
        break;
      case 1:
        field.ragged = true;
        field.codec = std::make_unique<BackwardsCodec>();
        break;
      default:
        field.codec = MakeArrayCodec(fixed_bytes_);
        field.shape = {fixed_bytes_};
        field.row_bytes = fixed_bytes_;
    }
    schema_.push_back(std::move(field));
  }

  void MakeMachine() {
    options_.batches_max = 1 + static_cast<std::uint32_t>(random_.Below(6));
    options_.reads_in_flight_max = 1 + static_cast<std::uint32_t>(random_.Below(12));
    options_.coalesce_bytes_max = 1 + random_.Below(60000);
    options_.block_gap_bytes = random_.Below(2) * 16384;
    options_.block_read_bytes_max = 1 + random_.Below(random_.Below(2) == 0 ? 5000 : 100000);
    options_.decode_task_bytes = 1 + random_.Below(20000);
    options_.on_error = random_.Below(2) == 0 ? OnError::kRaise : OnError::kSubstitute;
    // From nothing (each read is beyond) to far too much.
    staging_ = BufferPool::Make(random_.Below(2) == 0 ? random_.Below(40000) : 1 << 20);
    batch_memory_ = BufferPool::Make(random_.Below(2) == 0 ? random_.Below(40000) : 4 << 20);
    if (random_.Below(3) == 0)
      pinned_blocks_ = std::make_shared<PinnedBlocks>(random_.Below(300000));
    hold_share_ = random_.Below(4) == 0 ? 1 + random_.Below(100) : 0;
    cores_ = 1 + static_cast<int>(random_.Below(4));
    delay_max_ns_ = 1 + static_cast<std::int64_t>(random_.Below(5'000'000));
    leaves_ = random_.Below(2) == 0;
    reads_now_ = random_.Below(2) == 0;
  }

  void MakePlan() {
    const std::uint64_t unit_bytes = std::uint64_t{64} << random_.Below(4);
    std::vector<std::uint32_t> units(index_.samples);
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      std::uint64_t bytes = 0;
      for (const auto& column : index_.columns) bytes += column.extents[i].range.size;
      units[i] = static_cast<std::uint32_t>(
          std::max<std::uint64_t>(1, (bytes + unit_bytes - 1) / unit_bytes));
    }
    BlockPlanMaker maker(units, random_);
    plan_ = maker.Make();
    residents_ = CellPool::Make(maker.budget_units(), unit_bytes).value();
  }

  void Consume(Engine& engine, SimSink& sink, Consumer& consumer) {
    if (consumer.left) return;
    if (sink.ready.empty()) {
      if (sink.end.has_value()) {
        done_ = true;
        CheckEnd(*sink.end, consumer.next < plan_.size() ? &plan_[consumer.next] : nullptr);
        return;
      }
      sink.wake = [this, &engine, &sink, &consumer] {
        loop_.After(0, [=, this, &engine, &sink, &consumer] { Consume(engine, sink, consumer); });
      };
      engine.OnWaiting();
      return;
    }
    const std::shared_ptr<Batch> batch = std::move(sink.ready.front());
    sink.ready.pop_front();
    engine.OnTaken();
    ASSERT_LT(consumer.next, plan_.size());
    ASSERT_NO_FATAL_FAILURE(CheckBatch(*batch, plan_[consumer.next++]));
    if (random_.Below(100) < hold_share_) consumer.held.push_back(batch);
    if (!consumer.held.empty() && random_.Below(10) == 0) consumer.held.pop_back();
    if (--consumer.steps_until_leaving == 0) {
      consumer.left = true;
      engine.Stop();
      return;
    }
    const auto think_ns = static_cast<std::int64_t>(random_.Below(2'000'000));
    loop_.After(think_ns, [this, &engine, &sink, &consumer] { Consume(engine, sink, consumer); });
  }

  std::unique_ptr<TierCache> BeginTiers(std::size_t begin) {
    if (tiers_ == nullptr) return nullptr;
    return tiers_->Begin(
        [this, begin]() -> Result<std::unique_ptr<UseStream>> {
          return std::unique_ptr<UseStream>(std::make_unique<ListedUses>(StepsFrom(plan_, begin)));
        },
        1, 0);
  }

  // One engine, from step `begin` of the plan until it ends or the consumer leaves. Returns where
  // to go on.
  std::size_t RunEngine(std::size_t begin) {
    SimStore store(loop_, *store_bytes_, [this](const Extent& extent) { return Decide(extent); });
    if (reads_now_) store.SetReadNow([this] { return random_.Below(3) != 0; });
    SimExecutor executor(loop_, cores_, [this](std::uint64_t) {
      return static_cast<std::int64_t>(random_.Below(1'000'000));
    });
    SimSink sink;
    Consumer consumer{.next = begin};
    consumer.steps_until_leaving = leaves_ ? 1 + random_.Below(12) : ~std::uint64_t{0};
    Engine engine({.index = &index_,
                   .schema = schema_,
                   .store = &store,
                   .executor = &executor,
                   .clock = &loop_.clock(),
                   .lanes = {{.sink = &sink, .batch_memory = batch_memory_}},
                   .staging = staging_,
                   .residents = residents_,
                   .pinned_blocks = pinned_blocks_,
                   .model = tiers_ == nullptr ? nullptr : tiers_->model()},
                  options_, std::make_unique<ListedSteps>(StepsFrom(plan_, begin)),
                  BeginTiers(begin));
    engine.Start();
    Consume(engine, sink, consumer);
    EXPECT_TRUE(loop_.RunUntilIdle(kWorldEventsMax));
    EXPECT_TRUE(done_ || consumer.left || ::testing::Test::HasFailure())
        << "stuck: nothing is left to happen, and the consumer waits for step " << consumer.next
        << " of " << plan_.size();
    const EngineStats stats = engine.stats();
    EXPECT_LE(stats.resident.used_units_peak, residents_->capacity_units());
    EXPECT_LE(stats.staging.used_bytes_peak, stats.staging.capacity_bytes);
    EXPECT_LE(stats.batch.used_bytes_peak, stats.batch.capacity_bytes);
    EXPECT_LE(stats.pinned.used_bytes_peak, stats.pinned.capacity_bytes);
    EXPECT_LT(store.in_flight_peak(), options_.reads_in_flight_max + index_.columns.size());
    if (tiers_ != nullptr) tiers_->Count(stats.tiers);
    engine.Stop();
    EXPECT_TRUE(loop_.RunUntilIdle(kWorldEventsMax));
    EXPECT_TRUE(engine.quiescent());
    engine.Close();
    EXPECT_EQ(residents_->stats().used_units, 0);
    return consumer.next;
  }

  std::vector<Step> plan_;
  std::shared_ptr<BufferPool> staging_;
  std::shared_ptr<BufferPool> batch_memory_;
  std::shared_ptr<CellPool> residents_;
  std::shared_ptr<PinnedBlocks> pinned_blocks_;
  std::unique_ptr<MemoryStore> store_bytes_;
};

TEST(EngineBlocksSimTest, DeliversThePlanWhateverHappens) { RunSeeds<BlocksWorld>(kBlocksSeeds); }

}  // namespace
}  // namespace headrace
