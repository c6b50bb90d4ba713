// What the engine does with tiers, one claim at a time, in virtual time: the placement is written
// down, step by step.

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
#include "engine/testing/lane_world.h"
#include "gmock/gmock.h"
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
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint64_t kSampleBytes = 1000;
constexpr std::uint64_t kSamples = 12;

// Ops and uses by step; of the uses those at other nodes alone.
class WrittenPlacement final : public Placement {
 public:
  WrittenPlacement(std::map<std::uint64_t, std::vector<CacheOp>> ops,
                   std::map<std::uint64_t, std::vector<PlannedUse>> uses)
      : ops_(std::move(ops)), uses_(std::move(uses)) {}

  std::optional<PlacedStep> Next() override {
    const std::uint64_t step = step_++;
    return PlacedStep{.at = {.epoch = 0, .step = step}, .uses = uses_[step], .ops = ops_[step]};
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  std::map<std::uint64_t, std::vector<CacheOp>> ops_;
  std::map<std::uint64_t, std::vector<PlannedUse>> uses_;
  std::uint64_t step_ = 0;
};

CacheOp Insert(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = kNoTier, .to = tier};
}
CacheOp Ahead(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = kNoTier, .to = tier, .ahead = true};
}
CacheOp Evict(std::uint32_t block, TierNumber tier = 0) {
  return {.block = block, .from = tier, .to = kNoTier};
}

PlannedUse AtNode(std::uint32_t block, NodeNumber node) {
  return {.block = block, .peer = node, .at_peer = true};
}

// Other nodes, in virtual time: each read takes a millisecond.
class SimNodes final : public FetchSource {
 public:
  SimNodes(SimLoop& loop, const TableIndex& index) : loop_(loop), index_(index) {}

  [[nodiscard]] std::size_t BufferBytes(const Fetch& fetch) const override {
    return fetch.extent.range.size;
  }
  void Read(std::span<Fetch* const> fetches, const std::stop_token& /*stop*/,
            const Done& done) override {
    for (Fetch* const fetch : fetches) {
      asked.emplace_back(fetch->node, Raw(fetch->sample));
      loop_.After(kMs, [this, fetch, &done] {
        std::string bytes = index_.Payload(0, fetch->sample);
        if (lost.contains(Raw(fetch->sample))) {
          return done(*fetch, Status(StatusCode::kNotFound, "the node does not have it"));
        }
        if (damaged.contains(Raw(fetch->sample))) bytes[0] = '?';
        EXPECT_EQ(fetch->extent.range.size, bytes.size());
        std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(fetch->memory().data()));
        done(*fetch, fetch->memory().first(bytes.size()));
      });
    }
  }

  std::vector<std::pair<NodeNumber, std::uint64_t>> asked;
  std::set<std::uint64_t> lost;
  std::set<std::uint64_t> damaged;

 private:
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
    Engine engine(
        {.index = &index_,
         .schema = schema_,
         .store = &store,
         .executor = &executor,
         .clock = &loop_.clock(),
         .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
         .staging = BufferPool::Make(kMiB),
         .model = model_.has_value() ? &*model_ : nullptr,
         .nodes = nodes_.has_value() ? &*nodes_ : nullptr},
        options_, MakeListOrder(std::move(list)),
        std::make_unique<TierCache>(tiers, MakeUniformBlocks(kSamples, 1),
                                    std::make_unique<WrittenPlacement>(std::move(ops), at_nodes_),
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
  Engine* engine_ = nullptr;                                   // while it runs
  std::int64_t read_ns_ = kMs;
  std::int64_t think_ns_ = 0;
  std::uint64_t slow_ = kSamples;  // the sample whose reads take a hundred times as long

  std::vector<std::uint64_t> reads_;  // samples, as asked of storage
  TierCounts stats_;
  std::map<std::uint64_t, std::vector<TierNumber>> sources_;  // of each sample's deliveries
};

TEST_F(EngineTiersTest, WhatIsReadOnceIsInsertedAndNotReadAgain) {
  Run({{0, 1}, {2}, {1, 0}}, {{0, {Insert(0), Insert(1)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 0));
  EXPECT_EQ(stats_.uses[0].samples, 2u);
  EXPECT_EQ(stats_.uses[0].ahead, 0u);
  EXPECT_EQ(stats_.storage_uses, 3u);
}

TEST_F(EngineTiersTest, WhatIsEvictedIsReadAgainAndWhatIsNotWantedIsNotInserted) {
  Run({{0, 1}, {2}, {0, 1}}, {{0, {Insert(0)}}, {1, {Evict(0)}}});
  EXPECT_EQ(ReadsOf(0), 2);
  EXPECT_EQ(ReadsOf(1), 2);
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
}

TEST_F(EngineTiersTest, SamplesAreFetchedAheadWhileTheConsumerThinks) {
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {5, 6}}, {{0, {Ahead(5), Ahead(6)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 5, 6));
  EXPECT_EQ(stats_.fetched_ahead, 2u);
  EXPECT_EQ(stats_.uses[0].ahead, 2u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

TEST_F(EngineTiersTest, WhatSomebodyWaitsForIsReadBeforeWhatIsFetchedAhead) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 2;
  Run({{0, 1, 2}, {3, 4}}, {{0, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(reads_.back(), 5u);
}

// NoPFS's helper: whoever comes first fetches, and inserts it into the tier.
TEST_F(EngineTiersTest, ASampleLinedUpIsInsertedByTheReadThatNeedsIt) {
  options_.batches_max = 3;
  Run({{0}, {5}, {5}}, {{0, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.fetched_ahead, 0u);
  EXPECT_EQ(stats_.uses[0].samples, 1u);
  EXPECT_EQ(stats_.uses[0].ahead, 0u);  // It was used before it was there: reuse.
}

TEST_F(EngineTiersTest, ARowWaitsForASampleOnItsWay) {
  slow_ = 5;
  Run({{0}, {1}, {5}}, {{1, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.waits, 1u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

TEST_F(EngineTiersTest, ASampleEvictedOnItsWayIsGivenToThoseWhoWaitAndThenLetGo) {
  options_.batches_max = 4;
  Run({{5}, {5}, {5}, {1}}, {{0, {Insert(5)}}, {2, {Evict(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.waits, 2u);
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
}

TEST_F(EngineTiersTest, ADiskIsWrittenAndReadWithoutStorage) {
  tiers_.clear();
  AddDisk();
  Run({{0, 1}, {2}, {1, 0}}, {{0, {Insert(0), Insert(1)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier, 0));
  EXPECT_EQ(tiers_[0]->stats().inserts, 2u);
}

TEST_F(EngineTiersTest, ACorruptEntryIsReadFromStorageAndInsertedAnew) {
  tiers_.clear();
  SimTier& disk = AddDisk();
  Run({{0, 1}, {2}, {1, 0}, {3}, {0, 1}}, {{0, {Insert(0), Insert(1)}}}, [&](std::size_t batch) {
    if (batch == 0) disk.Corrupt(SampleId{0});
  });
  EXPECT_EQ(ReadsOf(0), 2);
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_EQ(stats_.fallbacks, 1u);
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kNoTier, 0));
}

TEST_F(EngineTiersTest, ADiskThatFailsCostsReadsAndNothingElse) {
  tiers_.clear();
  SimTier& disk = AddDisk();
  Run({{0, 1}, {2}, {1, 0}, {3}, {0, 1}}, {{0, {Insert(0), Insert(1)}}, {3, {Insert(3)}}},
      [&](std::size_t batch) {
        if (batch == 1) disk.FailReads();
        if (batch == 2) disk.FailInserts();
      });
  EXPECT_TRUE(disk.stats().degraded);
  EXPECT_GE(stats_.fallbacks, 1u);
  EXPECT_GE(stats_.not_kept, 1u);
}

TEST_F(EngineTiersTest, AMoveTakesASampleFromTierToTier) {
  AddDisk();
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {2}, {0}}, {{0, {Insert(0)}}, {1, {{.block = 0, .from = 0, .to = 1}}}});
  EXPECT_EQ(ReadsOf(0), 1);
  EXPECT_EQ(stats_.moved, 1u);
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 1));
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
  EXPECT_THAT(tiers_[1]->Held(), ElementsAre(SampleId{0}));
}

TEST_F(EngineTiersTest, AFullTierRefusesAndTheRowComesAllTheSame) {
  tiers_.clear();
  AddRam(/*samples=*/1);
  Run({{0, 1}, {0, 1}}, {{0, {Insert(0), Insert(1)}}});  // A plan that is wrong.
  EXPECT_EQ(stats_.not_kept, 2u);
  EXPECT_EQ(tiers_[0]->stats().entries, 1u);
}

TEST_F(EngineTiersTest, StorageIsTakenWhereTheModelSaysItIsFaster) {
  tiers_.clear();
  AddDisk();
  const auto rate = [](double bytes_per_second) {
    return SizedRates::OfAnySize(Curve::Make({{.users = 1, .rate = bytes_per_second}}).value());
  };
  model_ = MachineModel{.storage = {.rate = rate(1e9)}};
  model_->tiers.push_back({.read = rate(1e8), .write = rate(1e8)});
  Run({{0}, {1}, {0}}, {{0, {Insert(0)}}});
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kNoTier));
  EXPECT_EQ(tiers_[0]->stats().inserts, 1u);
  EXPECT_EQ(ReadsOf(0), 2);
}

TEST_F(EngineTiersTest, ASampleOfAnotherNodeComesFromThereAndNotFromStorage) {
  nodes_.emplace(loop_, index_);
  at_nodes_ = {{0, {AtNode(1, 3), AtNode(2, 1)}}};
  Run({{0, 1, 2}, {1}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1));
  EXPECT_THAT(nodes_->asked, UnorderedElementsAre(std::pair(3U, 1U), std::pair(1U, 2U)));
  EXPECT_THAT(sources_[1], ElementsAre(kFromNode, kNoTier));
  EXPECT_EQ(stats_.node_uses, 2u);
  EXPECT_EQ(stats_.node_bytes, 2 * kSampleBytes);
  EXPECT_EQ(stats_.node_fallbacks, 0u);
  EXPECT_EQ(stats_.storage_uses, 2u);
}

TEST_F(EngineTiersTest, WithoutASourceForOtherNodesTheirSamplesComeFromStorage) {
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1));
  EXPECT_EQ(stats_.node_uses, 0u);
}

TEST_F(EngineTiersTest, WhatAnotherNodeDoesNotGiveComesFromStorageInTheSameRow) {
  nodes_.emplace(loop_, index_);
  nodes_->lost = {1};
  at_nodes_ = {{0, {AtNode(1, 3), AtNode(2, 3)}}};
  Run({{0, 1, 2}, {3}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 3));
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier));
  EXPECT_THAT(sources_[2], ElementsAre(kFromNode));
  EXPECT_EQ(stats_.node_fallbacks, 1u);
}

TEST_F(EngineTiersTest, ASampleOfAnotherNodeIsInsertedWhereThePlanWantsIt) {
  nodes_.emplace(loop_, index_);
  at_nodes_ = {{0, {AtNode(1, 3)}}, {2, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}, {1}}, {{0, {Insert(1)}}});
  EXPECT_EQ(ReadsOf(1), 0);
  EXPECT_EQ(nodes_->asked.size(), 1u);
  EXPECT_THAT(sources_[1], ElementsAre(kFromNode, 0));
}

TEST_F(EngineTiersTest, ASampleThatWasLostOnTheWayIsInsertedFromStorage) {
  nodes_.emplace(loop_, index_);
  nodes_->lost = {1};
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}, {1}}, {{0, {Insert(1)}}});
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier, 0));
}

TEST_F(EngineTiersTest, DamagedBytesOfAnotherNodeAreReadFromStorage) {
  nodes_.emplace(loop_, index_);
  nodes_->damaged = {1};
  index_.columns[0].info.has_checksums = true;
  index_.infos = {index_.columns[0].info};
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::string payload = index_.Payload(0, SampleId{i});
    index_.columns[0].checksums.push_back(Hash64(std::as_bytes(std::span(payload))));
  }
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}}, {});
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_EQ(stats_.node_fallbacks, 1u);
}

TEST_F(EngineTiersTest, ASampleIsBroughtForAnotherNodeOnce) {
  std::vector<std::string> brought;
  const auto bring = [&](std::uint64_t sample) {
    engine_->Bring(SampleId{sample}, [&, sample](Result<Tier::EntryRef> entry) {
      brought.push_back(std::to_string(sample) +
                        (entry.ok() ? " of " + std::to_string(entry.value().bytes())
                                    : ": " + std::string(entry.status().message())));
    });
  };
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {5}, {2}}, {{0, {Insert(5), Insert(0)}}}, [&](std::size_t batch) {
    if (batch == 0) {
      bring(5);
      bring(5);
      bring(0);
      bring(7);
    }
  });
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_THAT(brought, UnorderedElementsAre("5 of 1000", "5 of 1000", "0 of 1000",
                                            "7: bringing sample 7: the plan does not keep it now"));
  EXPECT_EQ(stats_.brought, 1u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

TEST_F(EngineTiersTest, WhatIsBroughtWhenTheRunEndsIsAnswered) {
  int answers = 0;
  slow_ = 5;
  Run({{0}, {1}}, {{0, {Insert(5)}}}, [&](std::size_t batch) {
    if (batch != 1) return;
    engine_->Bring(SampleId{5}, [&](const Result<Tier::EntryRef>& /*entry*/) { ++answers; });
  });
  EXPECT_EQ(answers, 1);
}

TEST_F(EngineTiersTest, APlanThatNamesAnInsertTwiceIsADefect) {
  EXPECT_DEATH(Run({{0}, {1}}, {{0, {Insert(0), Insert(0)}}}), "check failed");
}

}  // namespace
}  // namespace headrace
