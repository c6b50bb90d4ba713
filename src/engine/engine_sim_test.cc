// The real engine under a virtual clock: every seed is another dataset, another machine, another
// schedule of late, reordered and failing reads, another consumer, who may hold batches, leave in
// the middle and resume. What is delivered must be what the plan says, byte by byte, whatever
// happens.

#include <memory>
#include <string>

#include "codec/bytes_codec.h"
#include "engine/batch/row_rooms.h"
#include "engine/engine.h"
#include "engine/testing/lane_world.h"
#include "engine/testing/sim_world.h"
#include "gtest/gtest.h"
#include "plan/exact_order.h"
#include "sim/sim_executor.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kSamplesSeeds = 3000;
#else
constexpr std::uint64_t kSamplesSeeds = 1000;  // Slow builds look for other mistakes.
#endif

// Everything that a seed decides.
class SamplesWorld final : public SimWorld {
 public:
  explicit SamplesWorld(std::uint64_t seed) : SimWorld(seed, 0x51u) {
    MakeDataset();
    MakeOptions(seed);
    store_bytes_ = std::make_unique<MemoryStore>(stored_);
    if (!index_.columns.empty() && random_.Below(2) == 0) MakeTiers();
  }

  // Runs to the end of the plan, with as many engines as the consumer's leaving makes necessary.
  void Run() {
    Position position;
    while (!done_ && !::testing::Test::HasFatalFailure()) position = RunEngine(position);
  }

 private:
  // The consumer of one engine: takes, checks, holds, leaves.
  struct Consumer {
    std::uint64_t steps_until_leaving = 0;
    bool left = false;
    std::size_t ready_when_left = 0;
    bool ended_when_left = false;
    std::vector<std::shared_ptr<Batch>> held;
  };

  void MakeDataset() {
    index_.samples = 1 + random_.Below(60);
    index_.objects.resize(1 + random_.Below(4));
    const std::size_t stored_fields = random_.Below(8) == 0 ? 0 : 1 + random_.Below(2);
    index_.columns.resize(stored_fields);
    fixed_bytes_ = 1 + random_.Below(3000);
    large_ = random_.Below(4) == 0;
    const bool checksums = random_.Below(2) == 0;
    for (std::size_t c = 0; c < stored_fields; ++c) {
      index_.columns[c].info.name = "field" + std::to_string(c);
      ragged_.push_back(random_.Below(2) == 0);
    }
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      index_.labels.push_back(static_cast<std::int64_t>(1000 + i));
      for (std::size_t c = 0; c < stored_fields; ++c) {
        const std::uint64_t size = !ragged_[c] ? fixed_bytes_ : RaggedSize();
        const std::uint64_t object = random_.Below(index_.objects.size());
        AddPayload(c, i, object, size, /*gap_max=*/40000, checksums);
      }
    }
    Store(checksums, [] { return 0U; });
    MakeSchema();
  }

  // Empty, small, or around the size from which samples are read straight into the batch.
  std::uint64_t RaggedSize() {
    switch (random_.Below(9)) {
      case 0:
        return 0;
      case 1:
        return large_ ? kInPlaceBytesMin - 2 + random_.Below(5000) : 1;
      default:
        return random_.Below(5000);
    }
  }

  void MakeSchema() {
    for (std::size_t c = 0; c < index_.columns.size(); ++c) {
      BatchField field{.name = index_.infos[c].name, .index_field = c, .ragged = ragged_[c]};
      if (ragged_[c]) {
        field.codec = MakeBytesCodec();
        field.may_read_in_place = random_.Below(3) != 0;
      } else {
        field.codec = MakeArrayCodec(fixed_bytes_);
        field.shape = {fixed_bytes_};
        field.row_bytes = fixed_bytes_;
      }
      schema_.push_back(std::move(field));
    }
    AddLabel();
    AddNote();
  }

  void MakeOptions(std::uint64_t seed) {
    order_ = {.sample_count = index_.samples,
              .batch_size = 1 + random_.Below(9),
              .world_size = 1 + static_cast<std::uint32_t>(random_.Below(3)),
              .seed = seed,
              .shuffle = random_.Below(4) != 0,
              .drop_last = random_.Below(3) == 0,
              .epochs = 1 + random_.Below(3)};
    order_.rank = static_cast<std::uint32_t>(random_.Below(order_.world_size));
    if (!StepsPerEpoch(order_).ok()) order_.drop_last = false;
    options_.batches_max = 1 + static_cast<std::uint32_t>(random_.Below(6));
    options_.reads_in_flight_max = 1 + static_cast<std::uint32_t>(random_.Below(12));
    options_.coalesce_gap_bytes = random_.Below(2) * 16384;
    options_.coalesce_bytes_max = 1 + random_.Below(60000);
    options_.decode_task_bytes = 1 + random_.Below(20000);
    options_.on_error = random_.Below(2) == 0 ? OnError::kRaise : OnError::kSubstitute;
    options_.seed = seed;
    // From just enough for the largest to far too much.
    staging_bytes_ = BufferPool::ChargedBytes(2 * (kInPlaceBytesMin + SimStore::kShiftBytesMax))
                     << random_.Below(4);
    const std::uint64_t row_bytes = large_ ? kInPlaceBytesMin + 4 * kBufferAlignment : 5064;
    const std::uint64_t batch_bytes =
        order_.batch_size * (2 * row_bytes + 8 + 256) + 3 * kBufferAlignment;
    batch_bytes_ = BufferPool::ChargedBytes(batch_bytes) * (1 + random_.Below(6));
    if (random_.Below(10) == 0) staging_bytes_ = random_.Below(20000);  // Some reads are larger.
    if (random_.Below(10) == 0) batch_bytes_ = random_.Below(20000);    // Some batches are.
    hold_share_ = random_.Below(4) == 0 ? 1 + random_.Below(100) : 0;
    cores_ = 1 + static_cast<int>(random_.Below(4));
    delay_max_ns_ = 1 + static_cast<std::int64_t>(random_.Below(5'000'000));
    leaves_ = random_.Below(2) == 0;
    reads_now_ = random_.Below(2) == 0;
  }

  std::unique_ptr<TierCache> BeginTiers(Position start) {
    if (tiers_ == nullptr) return nullptr;
    return tiers_->Begin(
        [this, start] {
          const NodeSplit split{.world_size = order_.world_size, .ranks_per_node = 1};
          return MakeOrderUses(ExactOrderFactory(), {.job = order_}, blocks_, split, start);
        },
        order_.world_size, order_.rank);
  }

  void Consume(Engine& engine, SimSink& sink, Order& model, Consumer& consumer) {
    if (consumer.left) return;
    if (sink.ready.empty()) {
      if (sink.end.has_value()) {
        done_ = true;
        const std::optional<Step> next = model.Next();
        CheckEnd(*sink.end, next.has_value() ? &*next : nullptr);
        return;
      }
      sink.wake = [this, &engine, &sink, &model, &consumer] {
        loop_.After(0, [=, this, &engine, &sink, &model, &consumer] {
          Consume(engine, sink, model, consumer);
        });
      };
      engine.OnWaiting();
      return;
    }
    const std::shared_ptr<Batch> batch = std::move(sink.ready.front());
    sink.ready.pop_front();
    engine.OnTaken();
    const std::optional<Step> step = model.Next();
    ASSERT_TRUE(step.has_value());
    ASSERT_NO_FATAL_FAILURE(CheckBatch(*batch, *step));
    reached_ = {step->epoch, step->step + 1};
    if (step->ends_epoch) reached_ = {step->epoch + 1, 0};
    if (random_.Below(100) < hold_share_) consumer.held.push_back(batch);
    if (!consumer.held.empty() && random_.Below(10) == 0) consumer.held.pop_back();
    if (--consumer.steps_until_leaving == 0) {
      consumer.left = true;
      engine.Stop();
      consumer.ready_when_left = sink.ready.size();
      consumer.ended_when_left = sink.end.has_value();
      return;
    }
    const auto think_ns = static_cast<std::int64_t>(random_.Below(2'000'000));
    loop_.After(think_ns, [this, &engine, &sink, &model, &consumer] {
      Consume(engine, sink, model, consumer);
    });
  }

  // One engine, from `start` until the plan ends or the consumer leaves. Returns where to go on.
  Position RunEngine(Position start) {
    SimStore store(loop_, *store_bytes_, [this](const Extent& extent) { return Decide(extent); });
    if (reads_now_) store.SetReadNow([this] { return random_.Below(3) != 0; });
    SimExecutor executor(loop_, cores_, [this](std::uint64_t) {
      return static_cast<std::int64_t>(random_.Below(1'000'000));
    });
    SimSink sink;
    Consumer consumer;
    consumer.steps_until_leaving = leaves_ ? 1 + random_.Below(12) : ~std::uint64_t{0};
    auto model = MakeExactOrder(order_, start);
    auto order = MakeExactOrder(order_, start);
    EXPECT_TRUE(order.ok()) << order.status().ToString();
    Engine engine({.index = &index_,
                   .schema = schema_,
                   .store = &store,
                   .executor = &executor,
                   .clock = &loop_.clock(),
                   .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(batch_bytes_)}},
                   .staging = BufferPool::Make(staging_bytes_),
                   .model = tiers_ == nullptr ? nullptr : tiers_->model()},
                  options_, std::move(order).value(), BeginTiers(start));
    reached_ = start;
    engine.Start();
    Consume(engine, sink, *model.value(), consumer);
    const bool ended = loop_.RunUntilIdle(kWorldEventsMax);
    EXPECT_TRUE(ended);
    EXPECT_TRUE(done_ || consumer.left || ::testing::Test::HasFatalFailure())
        << "stuck: nothing is left to happen, and the consumer waits";
    if (!done_ && !consumer.left) done_ = true;
    const EngineStats stats = engine.stats();
    EXPECT_LE(stats.staging.used_bytes_peak, staging_bytes_);
    EXPECT_LE(stats.batch.used_bytes_peak, batch_bytes_);
    // A group of reads, one for each stored field, is issued whole.
    EXPECT_LT(store.in_flight_peak(), options_.reads_in_flight_max + index_.columns.size());
    if (consumer.left) {
      EXPECT_EQ(sink.end.has_value(), consumer.ended_when_left)
          << "the sink was called after Stop()";
      EXPECT_EQ(sink.ready.size(), consumer.ready_when_left) << "the sink was called after Stop()";
    }
    if (tiers_ != nullptr) tiers_->Count(stats.tiers);
    engine.Stop();
    EXPECT_TRUE(loop_.RunUntilIdle(kWorldEventsMax));
    EXPECT_TRUE(engine.quiescent());
    engine.Close();
    return reached_;
  }

  std::vector<bool> ragged_;
  bool large_ = false;  // some samples are read in place
  OrderOptions order_;
  std::uint64_t staging_bytes_ = 0;
  std::uint64_t batch_bytes_ = 0;
  std::unique_ptr<MemoryStore> store_bytes_;
  Position reached_;
};

TEST(EngineSimTest, DeliversThePlanWhateverHappens) { RunSeeds<SamplesWorld>(kSamplesSeeds); }

}  // namespace
}  // namespace headrace
