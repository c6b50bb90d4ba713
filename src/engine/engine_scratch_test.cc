// Decodes that need much scratch memory stay within the budget, take turns, and never deadlock. In
// virtual time.

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "engine/engine.h"
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

constexpr std::uint64_t kRowBytes = 16;

// The first 8 bytes of a sample say how much scratch memory its decode needs; the next ones are its
// row.
class HungryCodec final : public FieldCodec {
 public:
  [[nodiscard]] std::uint64_t RowBytes(std::uint64_t) const override { return kRowBytes; }
  [[nodiscard]] std::uint64_t ScratchBytesMax() const override { return kMiB; }
  Status DecodeWithin(std::span<const std::byte> encoded, const SampleKey& /*key*/,
                      std::span<std::byte> row, ScratchLimit& limit) const override {
    std::memcpy(&limit.bytes_needed, encoded.data(), sizeof(limit.bytes_needed));
    if (limit.bytes_needed > limit.bytes_max) {
      return Status(StatusCode::kResourceExhausted, "decoding takes much");
    }
    std::memcpy(row.data(), encoded.data() + sizeof(limit.bytes_needed), kRowBytes);
    return Status();
  }
};

struct ScratchWorld {
  std::uint64_t samples = 64;
  std::uint64_t batch_size = 8;
  std::uint64_t sample_bytes = 1000;
  std::uint64_t capacity_bytes = 100 * kKiB;
  std::uint32_t threads = 4;
  std::uint64_t staging_bytes = 64 * kKiB;
  std::uint64_t stop_after = 1'000'000;  // events
  bool warm = false;
  bool joined = false;  // neighbours are one read
  OnError on_error = OnError::kRaise;
  std::function<std::uint64_t(std::uint64_t sample)> needs;
};

class EngineScratchTest : public ::testing::Test {
 protected:
  void MakeDataset(const ScratchWorld& world) {
    index_ = TableIndex();
    index_.samples = world.samples;
    index_.columns.resize(1);
    std::string bytes;
    for (std::uint64_t i = 0; i < world.samples; ++i) {
      index_.columns[0].extents.push_back({ObjectId{0}, {bytes.size(), world.sample_bytes}});
      const std::uint64_t needs = world.needs(i);
      bytes.append(reinterpret_cast<const char*>(&needs), sizeof(needs));
      while (bytes.size() < (i + 1) * world.sample_bytes) {
        bytes.push_back(static_cast<char>(i * 131 + bytes.size() * 7));
      }
    }
    index_.objects = {std::move(bytes)};
    schema_ = {{.name = "image",
                .codec = std::make_shared<HungryCodec>(),
                .shape = {kRowBytes},
                .row_bytes = kRowBytes}};
  }

  // Runs one epoch in order and checks what comes; returns how it ended.
  Status Run(const ScratchWorld& world) {
    MakeDataset(world);
    SimLoop loop;
    MemoryStore bytes({{ObjectId{0}, index_.objects[0]}});
    SimStore store(loop, bytes, [](const Extent&) { return SimRead{.delay_ns = kMs}; });
    if (world.warm) store.SetReadNow([] { return true; });
    SimExecutor executor(loop, static_cast<int>(world.threads), [](std::uint64_t) { return kMs; });
    SimSink sink;
    scratch_ = ScratchBudget::Make({.capacity_bytes = world.capacity_bytes,
                                    .threads = world.threads,
                                    .memory_bytes_per_byte = 4});
    const std::uint64_t set_aside = scratch_->stats().used_bytes;
    EngineOptions options{.on_error = world.on_error};
    if (!world.joined) options.coalesce_bytes_max = 0;
    Engine engine({.index = &index_,
                   .schema = schema_,
                   .store = &store,
                   .executor = &executor,
                   .clock = &loop.clock(),
                   .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(64 * kKiB)}},
                   .staging = BufferPool::Make(world.staging_bytes),
                   .scratch = scratch_},
                  options,
                  MakeExactOrder({.sample_count = index_.samples,
                                  .batch_size = world.batch_size,
                                  .shuffle = false,
                                  .epochs = 1},
                                 {})
                      .value());
    delivered_ = 0;
    substituted_ = 0;
    std::function<void()> consume = [&] {
      if (sink.ready.empty()) {
        if (sink.end.has_value()) return;
        sink.wake = [&] { loop.After(0, consume); };
        engine.OnWaiting();
        return;
      }
      CheckBatch(*sink.ready.front());
      sink.ready.pop_front();
      engine.OnTaken();
      loop.After(0, consume);
    };
    engine.Start();
    consume();
    const bool idle = loop.RunUntilIdle(world.stop_after);
    stats_ = engine.stats();
    engine.Stop();
    EXPECT_TRUE(loop.RunUntilIdle(1'000'000));
    engine.Close();
    EXPECT_EQ(scratch_->stats().used_bytes, set_aside);
    EXPECT_LE(scratch_->stats().used_bytes_peak, world.capacity_bytes);
    return idle ? sink.end.value_or(Status(StatusCode::kInternal, "stuck")) : Status();
  }

  void CheckBatch(const Batch& batch) {
    for (std::uint32_t slot = 0; slot < batch.samples.size(); ++slot) {
      const std::string stored = index_.Payload(0, batch.samples[slot]);
      const std::span<const std::byte> row = batch.fields[0].packed.subspan(slot * kRowBytes);
      ASSERT_EQ(std::memcmp(row.data(), stored.data() + 8, kRowBytes), 0)
          << Raw(batch.samples[slot]);
      if (batch.substitutions.empty()) {
        ASSERT_EQ(Raw(batch.samples[slot]), delivered_);
      }
      ++delivered_;
    }
    substituted_ += batch.substitutions.size();
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  std::shared_ptr<ScratchBudget> scratch_;
  EngineStats stats_;
  std::uint64_t delivered_ = 0;
  std::uint64_t substituted_ = 0;
};

#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 300;
#else
constexpr std::uint64_t kSeeds = 80;  // Slow builds look for other mistakes.
#endif

TEST_F(EngineScratchTest, LargeDecodesAmongSmallOnesComeInTheirPlacesWithinTheBudget) {
  Prng random(11, 0, RandomStream::kOrder);
  std::uint64_t large = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    ScratchWorld world{.samples = 1 + random.Below(100),
                       .batch_size = 1 + random.Below(12),
                       .sample_bytes = 24 + random.Below(3) * random.Below(40'000),
                       .threads = 1 + static_cast<std::uint32_t>(random.Below(6)),
                       .staging_bytes = 16 * kKiB + random.Below(200 * kKiB),
                       .warm = random.Below(2) == 0,
                       .joined = random.Below(2) == 0};
    const std::uint64_t kind = random.Below(4);
    world.needs = [&](std::uint64_t) {
      return random.Below(kind) != 0 ? random.Below(50 * kKiB) : random.Below(100);
    };
    if (kind == 0) world.needs = [&](std::uint64_t) { return 50 * kKiB; };
    const Status status = Run(world);
    ASSERT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString();
    ASSERT_EQ(delivered_, world.samples) << "seed " << seed;
    large += scratch_->stats().large_count;
  }
  EXPECT_GT(large, std::uint64_t{3} * kSeeds);
}

TEST_F(EngineScratchTest, AsManyLargeDecodesAsFitRunAtOnce) {
  ScratchWorld world{.samples = 4, .batch_size = 4, .threads = 4};
  world.needs = [](std::uint64_t) { return 25 * kKiB; };  // half of the budget is for all
  EXPECT_TRUE(Run(world).ok());
  EXPECT_EQ(scratch_->stats().used_bytes_peak, 100 * kKiB);
  EXPECT_EQ(scratch_->stats().large_count, 4U);
  world.needs = [](std::uint64_t) { return 26 * kKiB; };
  EXPECT_TRUE(Run(world).ok());
  EXPECT_EQ(scratch_->stats().used_bytes_peak, 76 * kKiB);
}

TEST_F(EngineScratchTest, ADecodeThatCanNeverHaveEnoughIsAnErrorThatSaysHowMuch) {
  ScratchWorld world{.samples = 16, .batch_size = 8};
  world.needs = [](std::uint64_t sample) { return sample == 11 ? 60 * kKiB : 1000; };
  const Status status = Run(world);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "epoch 0 step 1 sample 11 (a): field image: decoding takes much: memory= leaves 50.0 "
            "KiB for one decode; raise memory= to at least 33.0 MiB, make the sample smaller "
            "(compressed ones, progressive JPEG, interlaced PNG and WebP are whole in memory), or "
            "leave it "
            "out with "
            "on_error=\"substitute\"");
  EXPECT_EQ(delivered_, 8U);
  world.on_error = OnError::kSubstitute;
  EXPECT_TRUE(Run(world).ok());
  EXPECT_EQ(delivered_, 16U);
  EXPECT_EQ(substituted_, 1U);
}

TEST_F(EngineScratchTest, AnEngineThatIsStoppedWithDecodesThatWaitEndsAndGivesAllBack) {
  for (const bool warm : {false, true}) {
    for (std::uint64_t events = 0; events < 120; ++events) {
      ScratchWorld world{.samples = 32, .sample_bytes = 30'000, .stop_after = events, .warm = warm};
      world.needs = [](std::uint64_t sample) { return sample % 3 == 0 ? 40 * kKiB : 100; };
      ASSERT_TRUE(Run(world).ok()) << events;
    }
  }
}

TEST_F(EngineScratchTest, BytesThatGoWithATaskAreReadAgainForALargeDecode) {
  ScratchWorld world{.samples = 8, .batch_size = 8, .sample_bytes = 1000, .warm = true};
  world.needs = [](std::uint64_t sample) { return sample == 5 ? 40 * kKiB : 100; };
  EXPECT_TRUE(Run(world).ok());
  EXPECT_EQ(delivered_, 8U);
  EXPECT_EQ(stats_.reads, 9U);
  EXPECT_EQ(stats_.lanes[0].sample_bytes, 8'000U);
}

}  // namespace
}  // namespace headrace
