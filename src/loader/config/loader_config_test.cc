#include "loader/config/loader_config.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/registry/testing/scoped_entry.h"
#include "base/units.h"
#include "engine/lanes/lane_policies.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "store/objects/object_store.h"
#include "store/store_table.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

// 100 samples, in an object that no file holds.
std::shared_ptr<const Index> MakeIndex(std::uint64_t sample_bytes = 1000,
                                       const std::string& root = "") {
  auto index = std::make_shared<TableIndex>();
  index->place = root;
  index->samples = 100;
  index->objects.emplace_back(100 * sample_bytes, 'x');
  TableIndex::Column& bytes = index->columns.emplace_back();
  bytes.info = {.name = "bytes", .kind = FieldKind::kBytes};
  for (std::uint64_t id = 0; id < 100; ++id) {
    bytes.extents.push_back({ObjectId{0}, {id * sample_bytes, sample_bytes}});
  }
  index->infos = {bytes.info};
  return index;
}

LoaderOptions Options() {
  return {.job = {.batch_size = 10, .world_size = 4, .ranks = 2},
          .memory_bytes = 8 * kMega,
          .threads = 3};
}

TEST(LoaderConfigTest, ResolvingOpensNothingThatTheOptionsName) {
  const TempFiles files;
  const std::string folder = files.folder() + "/tier";
  LoaderOptions options = Options();
  options.io = "io_uring";
  options.schedule = files.folder() + "/no_such_schedule";
  options.tiers.tiers = {{.path = folder, .capacity_bytes = 2 * kMega}};
  const auto config = ResolveConfig(MakeIndex(), options);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config.value().options.schedule, options.schedule);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(LoaderConfigTest, CapacitiesAreThoseOfAllRanksOfTheNode) {
  LoaderOptions options = Options();
  options.tiers.tiers = {{.path = "", .capacity_bytes = 2 * kMega},
                         {.path = "/nowhere", .capacity_bytes = 3 * kMega}};
  const LoaderConfig config = ResolveConfig(MakeIndex(), options).value();
  EXPECT_EQ(config.options.threads, 6);
  EXPECT_EQ(config.options.tiers.tiers[0].capacity_bytes, 4 * kMega);
  EXPECT_EQ(config.options.tiers.tiers[1].capacity_bytes, 6 * kMega);
  EXPECT_EQ(config.steps_per_epoch, 3U);
  EXPECT_EQ(config.options.job.sample_count, 100U);
  // The tier in memory is part of memory=; the one in a folder is not.
  EXPECT_EQ(config.memory_bytes(), config.budget.staging_bytes + config.budget.batch_bytes +
                                       config.budget.scratch_bytes + 4 * kMega);
  EXPECT_LE(config.memory_bytes(), 16 * kMega);
}

TEST(LoaderConfigTest, NothingIsReadIntoBatchesThatProcessesShare) {
  LoaderOptions options = Options();
  EXPECT_TRUE(ResolveConfig(MakeIndex(), options).value().schema[0].may_read_in_place);
  options.shared_batches = true;
  EXPECT_FALSE(ResolveConfig(MakeIndex(), options).value().schema[0].may_read_in_place);
}

TEST(LoaderConfigTest, TheEnginesLimitsFollowFromTheBudget) {
  LoaderOptions options = Options();
  options.memory_bytes = kMega / 4;
  const LoaderConfig small = ResolveConfig(MakeIndex(), options).value();
  const EngineOptions engine = small.engine_options();
  EXPECT_EQ(engine.batches_max, small.budget.batches_max);
  EXPECT_LE(engine.coalesce_bytes_max, small.budget.staging_bytes / 4);
  EXPECT_LE(2 * engine.block_read_bytes_max, small.budget.staging_bytes);
  EXPECT_TRUE(engine.verify);

  options.io = "synthetic";
  const EngineOptions made_up = ResolveConfig(MakeIndex(), options).value().engine_options();
  EXPECT_EQ(made_up.coalesce_bytes_max, 0U);
  EXPECT_EQ(made_up.block_read_bytes_max, 0U);
  EXPECT_FALSE(made_up.verify) << "made-up samples have no checksums";
}

// Of objects that no disk holds.
class FarStoreFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "far_away"; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == "far";
  }
  [[nodiscard]] StoreNeeds needs() const override { return kObjectStoreNeeds; }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest&) const override {
    return Status(StatusCode::kFailedPrecondition, "not to be opened");
  }
};

TEST(LoaderConfigTest, TheStoreOfTheIndexSaysWhatIsOneRead) {
  const FarStoreFactory factory;
  const ScopedEntry<StoreFactory> added(Stores(), factory);
  LoaderOptions options = Options();
  options.memory_bytes = 0;
  const auto engine_of = [&](const std::string& root, const std::string& order) {
    options.order.name = order;
    const auto config = ResolveConfig(MakeIndex(1'048'576, root), options);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.value().engine_options();
  };
  const EngineOptions near = engine_of("/data", "exact");
  EXPECT_EQ(near.coalesce_gap_bytes, 16 * kKiB);
  EXPECT_EQ(near.coalesce_bytes_max, kMiB);
  EXPECT_EQ(near.block_gap_bytes, 64 * kKiB);
  EXPECT_EQ(near.block_read_bytes_max, 4 * kMiB);
  EXPECT_EQ(near.read_growth_max, 0U);
  const EngineOptions far = engine_of("far://bucket", "exact");
  EXPECT_EQ(far.coalesce_gap_bytes, kMiB);
  EXPECT_EQ(far.coalesce_bytes_max, 8 * kMiB);
  EXPECT_EQ(far.block_gap_bytes, kMiB);
  EXPECT_EQ(far.block_read_bytes_max, 8 * kMiB);
  EXPECT_EQ(far.read_growth_max, 2U);
}

TEST(LoaderConfigTest, TheStoreOfTheIndexSaysHowManyReadsAreInFlight) {
  EXPECT_EQ(SampleReadsInFlight(StoreNeeds(), 200'000), 83U);
  EXPECT_EQ(BlockReadsInFlight(StoreNeeds(), 200'000), 16U);
  EXPECT_EQ(BlockReadsInFlight(StoreNeeds(), 8 * kMiB), 16U);
  EXPECT_EQ(SampleReadsInFlight(kObjectStoreNeeds, 200'000), 256U);
  EXPECT_EQ(BlockReadsInFlight(kObjectStoreNeeds, kMiB), 64U);
  EXPECT_EQ(BlockReadsInFlight(kObjectStoreNeeds, 2 * kMiB), 32U);
  EXPECT_EQ(BlockReadsInFlight(kObjectStoreNeeds, 8 * kMiB), 16U);
}

TEST(LoaderConfigTest, WhatComesFromOtherNodesAndGoesToThemIsPartOfTheMemory) {
  LoaderOptions options = Options();
  options.order = {.name = "epoch", .parameters = {{"homes", std::int64_t{2}}}};
  options.nodes = PeerListen{};
  const auto config = ResolveConfig(MakeIndex(), options);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_TRUE(config.value().options.job.exchange);
  EXPECT_GT(config.value().parcel_bytes, 0U);
  EXPECT_GE(config.value().budget.staging_bytes, 2 * config.value().parcel_bytes);
  EXPECT_LE(config.value().memory_bytes(), 16 * kMega);
}

TEST(LoaderConfigTest, TiersOfADatasetThatLeavesOutSamplesAreRefused) {
  LoaderOptions options = Options();
  options.tiers.tiers = {{.path = "", .capacity_bytes = 2 * kMega}};
  options.order.left_out = std::make_shared<const std::vector<std::uint32_t>>(2, 7);
  EXPECT_EQ(ResolveConfig(MakeIndex(), options).status().ToString(),
            "InvalidArgument: tiers of a dataset that leaves out 2 samples: tiers keep blocks with "
            "all their samples; leave tiers= out, or open the dataset without skip= and give the "
            "loader on_error='substitute'");
}

// An index of images, and options of a tier that holds them decoded.
LoaderOptions DecodedOptions() {
  LoaderOptions options = Options();
  options.fields = {{.name = "bytes", .image = ImageTransform()}};
  options.tiers.tiers = {{.path = "", .capacity_bytes = 2 * kMega}};
  options.tiers.decoded_field = "bytes";
  options.tiers.decoded_images = std::make_shared<const std::vector<std::uint32_t>>(100, 5000);
  return options;
}

std::shared_ptr<const Index> MakeImages() {
  auto index = std::make_shared<TableIndex>(static_cast<const TableIndex&>(*MakeIndex()));
  index->columns[0].info.kind = FieldKind::kImage;
  index->infos[0].kind = FieldKind::kImage;
  return index;
}

TEST(LoaderConfigTest, ATierOfDecodedImagesIsInMemoryAloneAndOfOneImageField) {
  const auto code = [](const LoaderOptions& options) {
    return ResolveConfig(MakeImages(), options).status().code();
  };
  EXPECT_EQ(code(DecodedOptions()), StatusCode::kOk);
  LoaderOptions options = DecodedOptions();
  options.tiers.tiers.push_back({.path = "/nowhere", .capacity_bytes = 3 * kMega});
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = DecodedOptions();
  options.tiers.tiers[0].path = "/nowhere";
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = DecodedOptions();
  options.fields[0].image.reset();
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = DecodedOptions();
  options.tiers.decoded_field = "other";
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = DecodedOptions();
  options.order.name = "epoch";
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
}

TEST(LoaderConfigTest, MoreReadsAreInFlightTheSmallerTheyAre) {
  const auto reads = [](std::uint64_t sample_bytes) {
    LoaderOptions options = Options();
    options.memory_bytes = 0;
    const auto config = ResolveConfig(MakeIndex(sample_bytes), options);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.value().engine_options().reads_in_flight_max;
  };
  EXPECT_EQ(reads(1000), 256U);
  EXPECT_EQ(reads(102'400), 163U);
  EXPECT_EQ(reads(1'048'576), 64U);
}

TEST(LoaderConfigTest, ThreadsThatAPolicyLeavesIdleMayRead) {
  LoaderOptions options = Options();
  options.memory_bytes = 0;
  options.job.world_size = 2;
  options.job.ranks = 2;
  options.threads = 4;
  const auto reads = [&options] {
    const auto config = ResolveConfig(MakeIndex(1'048'576), options);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.value().engine_options().reads_in_flight_max;
  };
  const auto open = [](const LanePolicyRequest&) -> LanePolicyFactory::MakePolicy {
    return nullptr;
  };
  const LanePolicyFactory reading("reading", open, LanePolicyFactory::IdleThreads::kRead);
  const LanePolicyFactory waiting("waiting", open);
  const ScopedEntry<LanePolicyFactory> first(LanePolicies(), reading);
  const ScopedEntry<LanePolicyFactory> second(LanePolicies(), waiting);
  EXPECT_EQ(reads(), 64U);
  for (const auto& [schedule, most] : {std::pair("fixed", 64U),
                                       {"waiting", 64U},
                                       {"reading", 72U},
                                       {"/a/file/of/a/schedule", 72U}}) {
    options.schedule = schedule;
    EXPECT_EQ(reads(), most) << schedule;
  }
  options.job.ranks = 1;
  EXPECT_EQ(reads(), 68U) << "a file is followed by one rank, too";
  options.schedule = "reading";
  EXPECT_EQ(reads(), 64U);
}

}  // namespace
}  // namespace headrace
