#include "headrace/loader.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/cell_pool.h"
#include "base/units.h"
#include "engine/lanes/lane_parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "loader/batch_queue.h"
#include "loader/config/loader_config.h"
#include "loader/ending/reaper.h"
#include "loader/session/session.h"
#include "loader/session/session_reports.h"
#include "loader/testing/bytes_dataset.h"
#include "plan/block_map.h"
#include "plan/placement/placement.h"
#include "store/store_table.h"
#include "store/uring_file_store.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamples = 103;

// Over one large file, or a file a sample.
class LoaderTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "io_uring" && !UringFileStore::Probe().ok()) {
      GTEST_SKIP() << UringFileStore::Probe().ToString();
    }
    MakeDataset();
  }

  // Of blocks with so many samples each; none: it has no blocks.
  void MakeDataset(std::vector<std::uint64_t> blocks = {}) {
    dataset_.emplace(BytesDataset::Options{.samples = kSamples,
                                           .sample_bytes_max = 20000,
                                           .one_file = GetParam() != "threads",
                                           .blocks = std::move(blocks)});
  }

  std::unique_ptr<Loader> Open(LoaderOptions options) {
    options.io = GetParam();
    auto loader = Loader::Open(dataset_->index(), options);
    EXPECT_TRUE(loader.ok()) << loader.status().ToString();
    return std::move(loader).value();
  }

  // Takes to the end; the ids in order, every byte checked.
  std::vector<std::uint64_t> DrainIds(Loader& loader) {
    std::vector<std::uint64_t> ids;
    for (const RowList& rows : Drain(loader)) {
      for (const auto& [id, bytes] : rows) {
        EXPECT_EQ(bytes, dataset_->Row(id)) << id;
        ids.push_back(id);
      }
    }
    return ids;
  }

  std::vector<std::uint64_t> Planned(const OrderOptions& options) {
    auto order = MakeExactOrder(options, {});
    std::vector<std::uint64_t> ids;
    while (auto step = order.value()->Next()) {
      for (const Delivery& delivery : step->deliveries) ids.push_back(Raw(delivery.sample));
    }
    return ids;
  }

  std::optional<BytesDataset> dataset_;
};

TEST_P(LoaderTest, DeliversThePlanWithAnyNumberOfThreads) {
  OrderOptions order{.sample_count = kSamples, .batch_size = 8, .seed = 3, .epochs = 3};
  for (const int threads : {1, 2, 8}) {
    auto loader = Open({.job = order, .threads = threads});
    ASSERT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(DrainIds(*loader), Planned(order)) << threads;
    EXPECT_EQ(loader->stats().value().engine.lanes[0].samples, 3 * kSamples);
  }
}

TEST_P(LoaderTest, StaysInsideASmallBudget) {
  OrderOptions order{.sample_count = kSamples, .batch_size = 8, .seed = 3, .epochs = 2};
  auto loader = Open({.job = order, .memory_bytes = 400 * kKiB, .threads = 2});
  ASSERT_TRUE(loader->Start({}).ok());
  EXPECT_EQ(DrainIds(*loader), Planned(order));
  const LoaderStats stats = loader->stats().value();
  EXPECT_LE(stats.engine.staging.used_bytes_peak + stats.engine.batch.used_bytes_peak, 400 * kKiB);
  EXPECT_EQ(stats.engine.batch.beyond_count, 0);
}

TEST_P(LoaderTest, HoldingEveryBatchEndsInCountedMemory) {
  OrderOptions order{.sample_count = kSamples, .batch_size = 8, .seed = 3, .epochs = 1};
  auto loader = Open({.job = order, .memory_bytes = 400 * kKiB, .threads = 2});
  ASSERT_TRUE(loader->Start({}).ok());
  std::vector<std::shared_ptr<Batch>> held;
  bool beyond = false;
  for (;;) {
    auto taken = loader->Next(-1);
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    if (taken.value().ended) break;
    beyond |= taken.value().batch->beyond_budget;
    held.push_back(taken.value().batch);
  }
  EXPECT_TRUE(beyond);
  EXPECT_GT(loader->stats().value().engine.batch.beyond_bytes_peak, 0);
  std::uint64_t samples = 0;
  for (const auto& batch : held) {
    for (const auto& [id, bytes] : RowsOf(*loader, *batch)) ASSERT_EQ(bytes, dataset_->Row(id));
    samples += batch->samples.size();
  }
  EXPECT_EQ(samples, kSamples);
  loader.reset();
  held.clear();  // Batches outlive their loader.
}

TEST_P(LoaderTest, ARunCanBeLeftAndAnotherStartedAtAnyStep) {
  OrderOptions order{.sample_count = kSamples, .batch_size = 8, .seed = 3, .epochs = 2};
  const std::vector<std::uint64_t> whole = Planned(order);
  auto loader = Open({.job = order, .threads = 2});
  for (std::uint64_t step = 0; step < loader->facts().steps_per_epoch; ++step) {
    ASSERT_TRUE(loader->Start({.epoch = 0, .step = 0}).ok());
    for (std::uint64_t i = 0; i < step; ++i) ASSERT_TRUE(loader->Next(-1).ok());
    ASSERT_TRUE(loader->Start({.epoch = 1, .step = step}).ok());
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(kSamples + 8 * step);
    ASSERT_EQ(DrainIds(*loader), std::vector<std::uint64_t>(first, whole.end()));
  }
}

// In memory and in a folder, with real threads; what one loader left there the next one finds.
TEST_P(LoaderTest, DeliversThePlanWithTiersOfEveryPlacement) {
  const OrderOptions order{.sample_count = kSamples, .batch_size = 8, .seed = 3, .epochs = 4};
  const std::string folder = dataset_->folder() + "/tier";
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  for (const PlacementFactory* const placement : Placements().rows()) {
    const TiersSpec tiers{
        .tiers = {{.capacity_bytes = 300 * kKiB}, {.path = folder, .capacity_bytes = 500 * kKiB}},
        .placement = std::string(placement->name())};
    auto loader = Open({.job = order, .threads = 3, .tiers = tiers});
    ASSERT_TRUE(loader->Start({}).ok());
    EXPECT_EQ(DrainIds(*loader), Planned(order)) << placement->name();
    ASSERT_TRUE(loader->Start({}).ok());  // Left in the middle, with inserts under way.
    ASSERT_TRUE(loader->Next(-1).ok());
    const LoaderStats stats = loader->stats().value();
    ASSERT_EQ(stats.tiers.size(), 2u);
    for (const NamedTierStats& tier : stats.tiers) {
      EXPECT_LE(tier.stats.used_bytes_peak, tier.stats.capacity_bytes) << placement->name();
      EXPECT_EQ(tier.stats.corrupt, 0u);
      EXPECT_FALSE(tier.stats.degraded) << tier.stats.degraded_reason;
    }
    EXPECT_EQ(stats.engine.tiers.fallbacks, 0u);
  }
  std::filesystem::remove_all(folder);
}

// What the order says that an `epoch` loader delivers.
std::vector<std::uint64_t> PlannedEpochs(const Loader& loader, OrderOptions job) {
  const Index& index = loader.index();
  job.sample_count = index.sample_count();
  OrderParameters parameters = loader.facts().order_parameters;
  const auto block_samples = std::get<std::int64_t>(parameters.extract("block_samples").mapped());
  const std::shared_ptr<const Index> borrowed(&index, [](const Index*) {});
  const auto blocks = MakeIndexBlocks(borrowed, static_cast<std::uint64_t>(block_samples)).value();
  const OrderRequest request{.job = job, .parameters = parameters, .blocks = blocks};
  auto order = EpochOrderFactory().Make(request, {});
  std::vector<std::uint64_t> ids;
  while (auto step = order.value()->Next()) {
    for (const Delivery& delivery : step->deliveries) ids.push_back(Raw(delivery.sample));
  }
  return ids;
}

TEST_P(LoaderTest, EpochDeliversItsPlanFromLittleMemoryWithAnyNumberOfThreads) {
  const OrderOptions job{.batch_size = 8, .seed = 3, .epochs = 3};
  for (const std::uint64_t memory : {2 * kMiB, 600 * kKiB}) {
    for (const int threads : {1, 2, 8}) {
      auto loader = Open({.job = job,
                          .order = {.name = "epoch", .parameters = {{"block_samples", 5}}},
                          .memory_bytes = memory,
                          .threads = threads});
      ASSERT_TRUE(loader->Start({}).ok());
      EXPECT_EQ(DrainIds(*loader), PlannedEpochs(*loader, job)) << threads;
      const EngineStats stats = loader->stats().value().engine;
      EXPECT_EQ(stats.staging.beyond_count + stats.batch.beyond_count, 0);
      const std::uint64_t peak =
          stats.staging.used_bytes_peak + stats.batch.used_bytes_peak +
          stats.pinned.used_bytes_peak +
          CellPool::ChargedBytes(stats.resident.capacity_units, stats.resident.unit_bytes);
      EXPECT_LE(peak, memory);
    }
  }
}

TEST_P(LoaderTest, ABlockFarAboveTheMeanIsReadInPartsThatFitStagingMemory) {
  if (GetParam() == "threads") GTEST_SKIP() << "its samples are a file each";
  std::vector<std::uint64_t> blocks(kSamples - 40 + 1, 1);
  blocks[30] = 40;
  MakeDataset(blocks);
  const OrderOptions job{.batch_size = 4, .seed = 3, .epochs = 2};
  auto loader = Open({.job = job,
                      .order = {.name = "epoch", .parameters = {{"pools", 1}}},
                      .memory_bytes = 1400 * kKiB,
                      .threads = 2});
  ASSERT_TRUE(loader->Start({}).ok());
  EXPECT_EQ(DrainIds(*loader), PlannedEpochs(*loader, job));
  const EngineStats stats = loader->stats().value().engine;
  EXPECT_LT(stats.staging.capacity_bytes, 200 * kKiB);
  EXPECT_EQ(stats.staging.beyond_count, 0);
}

// 4 ranks of 103 samples, 5 pools: every rank simulates, and keeps, all pools.
TEST_P(LoaderTest, RanksThatSharePoolsKeepNoMoreThanTheirMemory) {
  std::multiset<std::uint64_t> ids;
  OrderOptions job{.batch_size = 4, .world_size = 4, .seed = 3, .epochs = 1};
  for (job.rank = 0; job.rank < job.world_size; ++job.rank) {
    auto loader =
        Open({.job = job,
              .order = {.name = "epoch", .parameters = {{"block_samples", 1}, {"pools", 5}}},
              .memory_bytes = 900 * kKiB,
              .threads = 2});
    const Budget budget = loader->stats().value().budget;
    const CellStats cells = loader->stats().value().engine.resident;
    ASSERT_TRUE(loader->Start({}).ok());
    for (const std::uint64_t id : DrainIds(*loader)) ids.insert(id);
    const CellStats used = loader->stats().value().engine.resident;
    EXPECT_LE(CellPool::ChargedBytes(used.capacity_units, used.unit_bytes), budget.resident_bytes);
    EXPECT_LE(used.used_units_peak, used.capacity_units);
    EXPECT_EQ(cells.used_units, 0);
  }
  EXPECT_EQ(ids.size(), 104);
  for (std::uint64_t id = 0; id < kSamples; ++id) EXPECT_GE(ids.count(id), 1) << id;
}

TEST_P(LoaderTest, EpochCanBeLeftAtAnyStepAndGoesOnAtAny) {
  const OrderOptions job{.batch_size = 8, .seed = 3, .epochs = 2};
  auto loader = Open({.job = job,
                      .order = {.name = "epoch", .parameters = {{"block_samples", 5}}},
                      .memory_bytes = 2 * kMiB,
                      .threads = 2});
  const std::vector<std::uint64_t> whole = PlannedEpochs(*loader, job);
  for (std::uint64_t step = 0; step < loader->facts().steps_per_epoch; ++step) {
    ASSERT_TRUE(loader->Start({.epoch = 0, .step = 0}).ok());
    for (std::uint64_t i = 0; i < step; ++i) ASSERT_TRUE(loader->Next(-1).ok());
    ASSERT_TRUE(loader->Start({.epoch = 1, .step = step}).ok());
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(kSamples + 8 * step);
    ASSERT_EQ(DrainIds(*loader), std::vector<std::uint64_t>(first, whole.end()));
  }
  for (std::uint64_t taken = 0; taken < 30; taken += 3) {  // and dies in the middle
    auto left = Open({.job = job, .order = {.name = "epoch"}, .threads = 2});
    ASSERT_TRUE(left->Start({}).ok());
    for (std::uint64_t i = 0; i < taken % 26; ++i) ASSERT_TRUE(left->Next(-1).ok());
  }
}

TEST_P(LoaderTest, GivesAListAsItIs) {
  auto loader = Open({.job = {.batch_size = 4}});
  const std::vector<SampleId> ids = {SampleId{5}, SampleId{5}, SampleId{0}, SampleId{102}};
  ASSERT_TRUE(loader->StartList({.ids = ids, .batch_ends = {3, 4}}).ok());
  EXPECT_EQ(DrainIds(*loader), (std::vector<std::uint64_t>{5, 5, 0, 102}));
  const Status status = loader->StartList({.ids = {SampleId{103}}, .batch_ends = {1}});
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "sampler position 0: sample 103, the dataset has 103");
  EXPECT_EQ(loader->StartList({.ids = ids, .batch_ends = {3}}).message(),
            "batch ends of a list: must ascend to its 4 ids, they end at 3");
  EXPECT_EQ(loader->StartList({.ids = ids, .batch_ends = {4}, .epoch = 1 << 24}).message(),
            "epoch of a list: got 16777216, must be below 16777216");
  auto of_blocks = Open({.job = {.batch_size = 4}, .order = {.name = "epoch"}, .threads = 1});
  EXPECT_THAT(std::string(of_blocks->StartList({.ids = ids, .batch_ends = {4}}).message()),
              ::testing::StartsWith("a list of samples in order 'epoch': only an order that keeps "
                                    "the list can follow it; use order '"));
}

TEST_P(LoaderTest, NextWithoutARunOrAfterStopIsAnError) {
  auto loader = Open({.job = {.batch_size = 4}});
  EXPECT_EQ(loader->Next(-1).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(loader->Start({}).ok());
  loader->Stop();
  EXPECT_EQ(loader->Next(-1).status().code(), StatusCode::kFailedPrecondition);
}

TEST_P(LoaderTest, AStartThatFailsEndsTheRunBefore) {
  auto loader = Open({.job = {.batch_size = 4}});
  for (const bool of_list : {false, true}) {
    ASSERT_TRUE(loader->Start({}).ok());
    const Status failed = of_list ? loader->StartList({.ids = {SampleId{103}}, .batch_ends = {1}})
                                  : loader->Start({.step = 999});
    EXPECT_FALSE(failed.ok());
    EXPECT_EQ(loader->Next(0).status().code(), StatusCode::kFailedPrecondition);
  }
}

TEST_P(LoaderTest, ADamagedSampleIsNamedOrReplaced) {
  const std::string file = dataset_->first_file();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).put('!').put('!').put('!');
  const OrderOptions order{.batch_size = 8, .shuffle = false, .epochs = 1};
  auto raising = Open({.job = order});
  ASSERT_TRUE(raising->Start({}).ok());
  const Status status = raising->Next(-1).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("epoch 0 step 0 sample 0 ("));

  auto replacing = Open({.job = order, .on_error = OnError::kSubstitute});
  ASSERT_TRUE(replacing->Start({}).ok());
  const std::vector<std::uint64_t> ids = DrainIds(*replacing);
  EXPECT_EQ(ids.size(), kSamples);
  const LoaderStats stats = replacing->stats().value();
  ASSERT_EQ(stats.delivered.substituted, 1);
  ASSERT_EQ(stats.delivered.substitutions.size(), 1);
  EXPECT_EQ(Raw(stats.delivered.substitutions[0].wanted), 0);
  EXPECT_EQ(Raw(stats.delivered.substitutions[0].given), ids[0]);
  EXPECT_NE(ids[0], 0);
}

TEST(StandInsTest, HaveRoomForAllRaggedFieldsOfTheLargestSampleAsTheyAreRead) {
  const auto index = std::make_shared<TableIndex>();
  index->samples = 8;
  index->columns.resize(2);
  for (const std::uint64_t bytes : {100'000U, 3000U}) {
    for (std::uint64_t i = 0; i < index->samples; ++i) {
      index->columns[bytes < 4096 ? 1 : 0].extents.push_back({ObjectId{0}, {0, bytes - i}});
    }
  }
  index->objects = {std::string(100'000, 'x')};
  index->infos = {{.name = "wide", .kind = FieldKind::kBytes},
                  {.name = "small", .kind = FieldKind::kBytes}};
  LoaderOptions options{.job = {.batch_size = 4}};
  const Budget without = ResolveConfig(index, options).value().budget;
  options.on_error = OnError::kSubstitute;
  const Budget with = ResolveConfig(index, options).value().budget;
  EXPECT_EQ(with.batches_max, without.batches_max);
  const std::uint64_t stand_in = BufferPool::ChargedBytes(100'000 + 2 * kBufferAlignment) + 4096;
  EXPECT_EQ(with.batch_bytes - without.batch_bytes, (with.batches_max + 2) * stand_in);
}

// What is ready and not taken does not count: how much that is depends on timing.
TEST_P(LoaderTest, DeliveredCountsWhatWasTakenAndNoMore) {
  const std::string file = dataset_->first_file();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).put('!').put('!').put('!');
  auto loader = Open(
      {.job = {.batch_size = 8, .shuffle = false, .epochs = 9}, .on_error = OnError::kSubstitute});
  ASSERT_TRUE(loader->Start({}).ok());
  for (std::uint64_t taken = 1; taken <= 2; ++taken) {
    ASSERT_NE(loader->Next(-1).value().batch, nullptr);
    const Delivered delivered = loader->stats().value().delivered;
    EXPECT_EQ(delivered.batches, taken);
    EXPECT_EQ(delivered.samples, taken * 8);
    EXPECT_EQ(delivered.substituted, 1);
    EXPECT_EQ(delivered.substitutions.size(), 1);
  }
}

TEST_P(LoaderTest, TheStepsOfEachRankAreTimedOverAllRuns) {
  constexpr std::uint32_t kRanks = 3;
  LoaderOptions options{.job = {.sample_count = kSamples,
                                .batch_size = 5,
                                .world_size = kRanks,
                                .ranks = kRanks,
                                .seed = 3,
                                .epochs = 2},
                        .io = GetParam()};
  LoaderConfig config = ResolveConfig(dataset_->index(), options).value();
  const auto job = Session::Open(dataset_->index(), std::move(config)).value();
  std::vector<std::vector<Position>> taken(kRanks);
  std::vector<std::uint64_t> bytes(kRanks);
  for (const std::uint64_t left_at : {3U, 100U}) {
    std::vector<BatchQueue> queues(kRanks);
    std::vector<BatchSink*> sinks;
    for (BatchQueue& queue : queues) sinks.push_back(&queue);
    const std::shared_ptr<SessionRun> run = job->Start({}, sinks).value();
    for (std::uint64_t step = 0; step < left_at; ++step) {
      for (std::uint32_t lane = 0; lane < kRanks; ++lane) {
        run->OnWaiting(lane);
        const TakenBatch next = queues[lane].Take(-1).value();
        if (next.ended) continue;
        run->OnTaken(lane, *next.batch, next.batch->times.handed_ns);
        taken[lane].push_back({.epoch = next.batch->epoch, .step = next.batch->step});
        bytes[lane] += next.batch->times.sample_bytes;
      }
    }
    job->Stop();
  }
  const std::vector<StepTime> steps = job->reports().step_times().value();
  const LoaderStats stats = job->reports().stats(0).value();
  ASSERT_EQ(stats.engine.lanes.size(), kRanks);
  std::size_t next = 0;
  std::int64_t all_waited_ns = 0;
  for (std::uint32_t lane = 0; lane < kRanks; ++lane) {
    std::int64_t waited_ns = 0;
    for (const Position& position : taken[lane]) {
      const StepTime& step = steps.at(next++);
      EXPECT_EQ(step.lane, lane);
      EXPECT_EQ((Position{.epoch = step.epoch, .step = step.step}), position);
      EXPECT_EQ(step.run, next - 1 < 3 + lane * taken[lane].size() ? 1U : 2U);
      EXPECT_LE(step.admitted_ns, step.read_ns);
      EXPECT_LE(step.read_ns, step.done_ns);
      EXPECT_LE(step.done_ns, step.handed_ns);
      EXPECT_LE(step.handed_ns, step.taken_ns);
      waited_ns += step.waited_ns();
      bytes[lane] -= step.bytes;
    }
    EXPECT_EQ(bytes[lane], 0U);
    // Both runs count, and a batch read ahead and not taken in the first.
    EXPECT_GE(stats.engine.lanes[lane].batches, taken[lane].size());
    std::int64_t stall_ns = 0;
    for (const std::int64_t ns : stats.engine.lanes[lane].stall_ns) stall_ns += ns;
    EXPECT_LE(waited_ns, stall_ns);
    all_waited_ns += waited_ns;
  }
  EXPECT_GT(all_waited_ns, 0);
  EXPECT_EQ(next, steps.size());
  EXPECT_GT(ImbalanceOf(steps, kRanks).iterations, 0U);
}

TEST_P(LoaderTest, AForkedChildGetsAnErrorAndExits) {
  auto loader = Open({.job = {.batch_size = 4}});
  ASSERT_TRUE(loader->Start({}).ok());
  auto batch = loader->Next(-1).value().batch;
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = loader->Next(-1).status().code() == StatusCode::kFailedPrecondition &&
                         loader->Start({}).code() == StatusCode::kFailedPrecondition;
    batch.reset();
    loader.reset();
    _exit(refused ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  EXPECT_TRUE(loader->Next(-1).ok());
}

TEST_P(LoaderTest, ExplainsWhereEachRowComesFrom) {
  auto loader = Open({.job = {.batch_size = 4, .shuffle = false}});
  const auto rows = loader->Explain({.epoch = 0, .step = 1}).value();
  ASSERT_EQ(rows.size(), 8);
  EXPECT_EQ(Raw(rows[0].sample), 4);
  EXPECT_EQ(rows[0].source, "storage");
  EXPECT_EQ(rows[0].range.size, dataset_->Payload(4).size());
  EXPECT_EQ(rows[1].source, "index");
}

TEST_P(LoaderTest, WithoutIoEachRowOfNeighboursBeginsWithAWholeSample) {
  LoaderOptions options;
  options.job = {.sample_count = kSamples, .shuffle = false};
  options.job.batch_size = 32;
  options.io = "synthetic";
  auto loader = Loader::Open(dataset_->index(), options);
  ASSERT_TRUE(loader.ok()) << loader.status().ToString();
  ASSERT_TRUE(loader.value()->Start({}).ok());
  auto taken = loader.value()->Next(-1);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  const Batch& batch = *taken.value().batch;
  ASSERT_EQ(batch.samples.size(), 32u);
  for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
    const std::span<std::byte> bytes = batch.row(loader.value()->facts().schema, 0, slot);
    const std::string row(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bool found = false;
    for (std::uint64_t id = 0; id < kSamples && !found; ++id)
      found = row.starts_with(dataset_->Payload(id));
    EXPECT_TRUE(found) << "slot " << slot;
  }
}

TEST_P(LoaderTest, AFolderThatAClosedLoaderStillHoldsIsNamedSo) {
  const std::string folder = dataset_->folder() + "/tier";
  std::filesystem::create_directory(folder);
  const LoaderOptions options{.tiers = {.tiers = {{.path = folder, .capacity_bytes = kMiB}}}};
  std::binary_semaphore storage_answers(0);
  auto hung = std::shared_ptr<void>(Open(options).release(), [&](Loader* loader) {
    storage_answers.acquire();
    delete loader;
  });
  EXPECT_FALSE(DestroyWithin(std::move(hung), 0, {folder + "/rank-0"}));
  LoaderOptions again = options;
  again.io = GetParam();
  EXPECT_THAT(
      Loader::Open(dataset_->index(), again).status().message(),
      ::testing::EndsWith("rank-0': reads of a closed loader of this process are still out, and it "
                          "keeps the folder until storage answers; wait for that, or use another "
                          "folder"));
  storage_answers.release();
  while (ReaperObjectCount() != 0) std::this_thread::yield();
  EXPECT_TRUE(Loader::Open(dataset_->index(), again).ok());
}

TEST_P(LoaderTest, OptionsThatCannotBeAreNamed) {
  const auto error = [&](LoaderOptions options) {
    options.io = GetParam();
    return std::string(Loader::Open(dataset_->index(), options).status().message());
  };
  EXPECT_EQ(error({.nodes = PeerListen{}}),
            "opening a loader with LoaderOptions::nodes: only a node process (hr.Node in Python) "
            "asks other nodes; leave it out");
  EXPECT_EQ(error({.fields = {{.name = "image"}}}),
            "field 'image': the dataset has no such field; it has bytes, label");
  EXPECT_EQ(error({.fields = {{.name = "label"}, {.name = "label"}}}),
            "field 'label': asked for twice; name each field once");
  EXPECT_EQ(
      error({.fields = {{.name = "bytes", .image = ImageTransform{}}}}),
      "field 'bytes': an image transform, but it holds no encoded images; leave the transform "
      "out");
  EXPECT_EQ(
      error({.fields = {{.name = "label", .sound = SoundTransform{}}}}),
      "field 'label': a sound transform, but it holds no encoded sounds; leave the transform out");
  EXPECT_EQ(error({.threads = -1}), "threads: got -1, must be in [0, 1024]");
  EXPECT_THAT(error({.job = {.batch_size = 64}, .memory_bytes = 100000}),
              ::testing::HasSubstr("memory 97.7 KiB: a batch of 64 samples takes"));
}

INSTANTIATE_TEST_SUITE_P(Stores, LoaderTest, ::testing::Values("io_uring", "threads", "auto"),
                         [](const auto& each) {
                           return each.param == "io_uring"  ? "Uring"
                                  : each.param == "threads" ? "Threads"
                                                            : "Auto";
                         });

}  // namespace
}  // namespace headrace
