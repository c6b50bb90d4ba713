#pragma once

// The engine with tiers whose placement is written down, step by step, in virtual time: for tests
// of one claim at a time.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/loop/loop_context.h"
#include "engine/testing/lane_world.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "plan/exact_order.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"
#include "store/memory_store.h"
#include "tier/ram_tier.h"
#include "tier/testing/sim_tier.h"

namespace headrace {

inline constexpr std::uint64_t kSampleBytes = 1000;
inline constexpr std::uint64_t kSamples = 12;

// Ops and uses by step, of the uses those at other nodes alone; and the nodes that read storage, if
// they are given.
class WrittenPlacement final : public Placement {
 public:
  WrittenPlacement(std::map<std::uint64_t, std::vector<CacheOp>> ops,
                   std::map<std::uint64_t, std::vector<PlannedUse>> uses,
                   std::vector<std::uint32_t> readers)
      : ops_(std::move(ops)), uses_(std::move(uses)), readers_(std::move(readers)) {}

  std::optional<PlacedStep> Next() override {
    const std::uint64_t step = step_++;
    return PlacedStep{.at = {.epoch = 0, .step = step}, .uses = uses_[step], .ops = ops_[step]};
  }
  [[nodiscard]] std::optional<std::uint32_t> StorageReaders() const override {
    return readers_.empty() ? std::nullopt : std::optional(readers_.at(step_ - 1));
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  std::map<std::uint64_t, std::vector<CacheOp>> ops_;
  std::map<std::uint64_t, std::vector<PlannedUse>> uses_;
  const std::vector<std::uint32_t> readers_;  // by step
  std::uint64_t step_ = 0;
};

inline CacheOp Insert(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = kNoTier, .to = tier};
}
inline CacheOp Ahead(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = kNoTier, .to = tier, .ahead = true};
}
inline CacheOp Evict(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = tier, .to = kNoTier};
}

inline PlannedUse AtNode(std::uint32_t block, NodeNumber node, TierNumber tier = 0,
                         TierNumber here = kNoTier) {
  return {.block = block, .tier = here, .peer = node, .peer_tier = tier, .at_peer = true};
}

inline SizedRates RateOf(double bytes_per_second) {
  return SizedRates::OfAnySize(Curve::Make({{.users = 1, .rate = bytes_per_second}}).value());
}

// Tiers in memory and on disk, another node, storage: bytes a second of each.
inline MachineModel ModelOf(double ram, double disk, double link, double storage) {
  MachineModel model{.storage = {.rate = RateOf(storage)}};
  for (const double rate : {ram, disk}) {
    model.tiers.push_back({.read = RateOf(rate), .write = RateOf(rate)});
  }
  model.link = LinkModel{.rate = RateOf(link)};
  return model;
}

// Other nodes, in virtual time: each read takes a millisecond.
class SimNodes final : public FetchSource {
 public:
  SimNodes(SimLoop& loop, const TableIndex& index) : loop_(loop), index_(index) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override { return fetch.bytes(); }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
            const Done& done) override {
    for (Fetch* const fetch : fetches) {
      const auto& wanted = fetch->Reads<SampleAtNode>();
      asked.emplace_back(wanted.nodes.first, Raw(wanted.sample));
      deadlines.push_back(fetch->deadline);
      if (on_asked) std::exchange(on_asked, nullptr)();
      answers_.emplace_back([this, fetch, &done] {
        const SampleId sample = fetch->Reads<SampleAtNode>().sample;
        std::string bytes = index_.Payload(0, sample);
        if (lost.contains(Raw(sample))) {
          return done(*fetch, Status(StatusCode::kNotFound, "the node does not have it"));
        }
        if (damaged.contains(Raw(sample))) bytes[0] = '?';
        EXPECT_EQ(fetch->bytes(), bytes.size());
        std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(fetch->memory().data()));
        done(*fetch, fetch->memory().first(bytes.size()));
      });
    }
    if (!holds) Answer();
  }
  void Answer() {
    for (auto& answer : std::exchange(answers_, {})) loop_.After(kMs, std::move(answer));
  }

  std::vector<std::pair<NodeNumber, std::uint64_t>> asked;
  std::vector<std::uint64_t> deadlines;  // of these
  std::set<std::uint64_t> lost;
  std::set<std::uint64_t> damaged;
  bool holds = false;              // until Answer()
  std::function<void()> on_asked;  // once

 private:
  std::vector<std::function<void()>> answers_;
  SimLoop& loop_;
  const TableIndex& index_;
};

class EngineTiersTest : public ::testing::Test {
 protected:
  using Batches = std::vector<std::vector<std::uint64_t>>;

  EngineTiersTest() {
    index_.samples = kSamples;
    index_.columns.resize(1);
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      index_.columns[0].extents.push_back({ObjectId{0}, {i * kSampleBytes, kSampleBytes}});
      index_.objects.resize(1);
      index_.objects[0] += std::string(kSampleBytes, static_cast<char>('a' + i));
    }
    schema_ = {{.name = "bytes",
                .codec = MakeArrayCodec(kSampleBytes),
                .shape = {kSampleBytes},
                .row_bytes = kSampleBytes}};
    options_.coalesce_bytes_max = 0;  // A read is a sample.
    options_.batches_max = 1;
    AddRam();
  }

  void AddRam(std::uint64_t samples = kSamples) {
    tiers_.push_back(RamTier::Make(samples * 1024, 1024).value());
  }
  SimTier& AddDisk() {
    auto disk = std::make_unique<SimTier>(
        disk_executor_, SimTierOptions{.capacity_bytes = kSamples * 1024, .unit_bytes = 1024});
    SimTier& added = *disk;
    tiers_.push_back(std::move(disk));
    return added;
  }

  // Delivers `batches` and checks every byte.
  void Run(const Batches& batches, std::map<std::uint64_t, std::vector<CacheOp>> ops,
           const std::function<void(std::size_t)>& after_batch = nullptr) {
    MemoryStore bytes({{ObjectId{0}, index_.objects[0]}});
    SimStore store(loop_, bytes, [&](const Extent& extent) {
      reads_.push_back(extent.range.offset / kSampleBytes);
      return SimRead{.delay_ns = reads_.back() == slow_ ? 100 * read_ns_ : read_ns_};
    });
    SimExecutor executor(loop_, 2, [](std::uint64_t) { return std::int64_t{0}; });
    ListOrderOptions list;
    for (const auto& batch : batches) {
      for (const std::uint64_t id : batch) list.ids.push_back(SampleId{id});
      list.batch_ends.push_back(list.ids.size());
    }
    std::vector<Tier*> tiers;
    for (const auto& tier : tiers_) tiers.push_back(tier.get());
    const std::vector<std::vector<std::uint32_t>> nothing_held(tiers.size());
    SimSink sink;
    Engine engine({.index = &index_,
                   .schema = schema_,
                   .store = &store,
                   .executor = &executor,
                   .clock = &loop_.clock(),
                   .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                   .staging = BufferPool::Make(staging_bytes_),
                   .model = model_.has_value() ? &*model_ : nullptr,
                   .nodes = nodes_.has_value() ? &*nodes_ : nullptr},
                  options_, MakeListOrder(std::move(list)),
                  std::make_unique<TierCache>(
                      tiers, MakeUniformBlocks(kSamples, 1),
                      std::make_unique<WrittenPlacement>(std::move(ops), at_nodes_, readers_),
                      nothing_held, /*node=*/0));
    engine_ = &engine;
    std::size_t taken = 0;
    std::function<void()> consume = [&] {
      if (sink.ready.empty()) {
        if (sink.end.has_value()) {
          EXPECT_TRUE(sink.end->ok()) << sink.end->ToString();
          return;
        }
        sink.wake = [&] { loop_.After(0, consume); };
        engine.OnWaiting();
        return;
      }
      Check(*sink.ready.front(), batches[taken]);
      sink.ready.pop_front();
      engine.OnTaken();
      if (after_batch) after_batch(taken);
      ++taken;
      loop_.After(think_ns_, consume);
    };
    engine.Start();
    consume();
    ASSERT_TRUE(loop_.RunUntilIdle(100'000));
    EXPECT_EQ(taken, batches.size());
    stats_ = engine.stats().tiers;
    engine.Close();
  }

  void Check(const Batch& batch, const std::vector<std::uint64_t>& ids) {
    ASSERT_EQ(batch.samples.size(), ids.size());
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      const std::span<std::byte> row = batch.row(schema_, 0, slot);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()),
                index_.Payload(0, SampleId{ids[slot]}));
      sources_[ids[slot]].push_back(batch.sources[slot]);
    }
  }

  // Another node asks for `sample`, for its step `step` of the run, from 1 up.
  void Bring(std::uint64_t sample, std::uint64_t step) {
    engine_->Bring(SampleId{sample}, step * kDeadlinesOfStep,
                   [&, sample](const Result<Tier::EntryRef>& entry) {
                     EXPECT_TRUE(entry.ok()) << entry.status().ToString();
                     brought_.push_back(sample);
                   });
  }

  [[nodiscard]] std::ptrdiff_t ReadsOf(std::uint64_t sample) const {
    return std::count(reads_.begin(), reads_.end(), sample);
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  EngineOptions options_;
  SimLoop loop_;
  SimExecutor disk_executor_{loop_, 1, [](std::uint64_t) { return kMs; }};
  std::vector<std::unique_ptr<Tier>> tiers_;  // fastest first
  std::optional<MachineModel> model_;
  std::optional<SimNodes> nodes_;
  std::map<std::uint64_t, std::vector<PlannedUse>> at_nodes_;  // by step
  std::vector<std::uint32_t> readers_;                         // by step
  Engine* engine_ = nullptr;                                   // while it runs
  std::uint64_t staging_bytes_ = kMiB;
  std::int64_t read_ns_ = kMs;
  std::int64_t think_ns_ = 0;
  std::uint64_t slow_ = kSamples;  // the sample whose reads take a hundred times as long

  std::vector<std::uint64_t> reads_;    // samples, as asked of storage
  std::vector<std::uint64_t> brought_;  // by Bring()
  TierCounts stats_;
  std::map<std::uint64_t, std::vector<TierNumber>> sources_;  // of each sample's deliveries
};

}  // namespace headrace
