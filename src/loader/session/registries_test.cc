// A new order, placement or store is one file and one row of its table: here are such files, with
// rows that a test adds. Lane policies: lane_schedule_test.cc. Formats:
// tests/python/test_registries.py.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/registry/testing/scoped_entry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/index_writer.h"
#include "headrace/loader.h"
#include "loader/planning/schedules.h"
#include "loader/testing/bytes_dataset.h"
#include "plan/exact_order.h"
#include "plan/placement/tiers.h"
#include "store/memory_store.h"
#include "store/store_table.h"

namespace headrace {
namespace {

constexpr std::uint64_t kRegistrySamples = 40;

// The last sample first.
class BackwardsOrder final : public Order {
 public:
  BackwardsOrder(std::unique_ptr<Order> forwards, std::uint64_t samples)
      : forwards_(std::move(forwards)), samples_(samples) {}

  std::optional<Step> Next() override {
    std::optional<Step> step = forwards_->Next();
    if (!step.has_value()) return step;
    for (Delivery& delivery : step->deliveries) {
      delivery.sample = SampleId{samples_ - 1 - Raw(delivery.sample)};
    }
    return step;
  }

 private:
  const std::unique_ptr<Order> forwards_;
  const std::uint64_t samples_;
};

class BackwardsFactory final : public OrderFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "backwards"; }
  [[nodiscard]] bool reads_blocks() const override { return false; }
  [[nodiscard]] Result<OrderParameters> Resolve(const OrderRequest& request) const override {
    return ParameterReader(name(), request.parameters).Finish();
  }
  [[nodiscard]] Result<std::uint64_t> ResidentUnits(
      const OrderRequest& /*request*/) const override {
    return std::uint64_t{0};
  }
  [[nodiscard]] Result<std::unique_ptr<Order>> Make(const OrderRequest& request,
                                                    Position start) const override {
    OrderOptions job = request.job;
    job.shuffle = false;
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> forwards, MakeExactOrder(job, start));
    return std::unique_ptr<Order>(
        std::make_unique<BackwardsOrder>(std::move(forwards), job.sample_count));
  }
};

// Keeps sample 7 from its first use on, and nothing else.
class SeventhPlacement final : public placement::Planner {
 public:
  SeventhPlacement(PlacementRequest request, std::unique_ptr<UseStream> stream)
      : Planner(std::move(request)), stream_(std::move(stream)), tiers_(MakeTiers()) {}

  std::optional<PlacedStep> Next() override {
    if (!stream_->Next(uses_)) return std::nullopt;
    PlacedStep step = Begin(uses_.at, OwnUses(uses_));
    for (const PlannedUse& use : step.uses) {
      if (use.block == 7 && use.tier == kNoTier) tiers_.Move(use.block, 0);
    }
    Finish(step, tiers_);
    return step;
  }

 private:
  [[nodiscard]] PlannedUse Locate(std::uint32_t block) const override {
    return {.block = block, .tier = tiers_.Of(block)};
  }

  const std::unique_ptr<UseStream> stream_;
  placement::NodeTiers tiers_;
  StepUses uses_;
};

// Objects of "letters://", each a letter as often as it is asked for.
class LetterStoreFactory final : public StoreFactory {
 public:
  [[nodiscard]] std::string_view name() const override { return "letter_box"; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == "letters";
  }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest& request) const override {
    std::unordered_map<ObjectId, std::string> objects;
    for (std::uint64_t i = 0; i < kRegistrySamples; ++i) {
      HEADRACE_ASSIGN_OR_RETURN(const FileInfo info, request.catalog->file(ObjectId{i}));
      objects.emplace(ObjectId{i}, std::string(info.size, info.path.back()));
    }
    StoreParts parts;
    parts.store = std::make_unique<MemoryStore>(std::move(objects));
    return parts;
  }
};

LoaderOptions Options() {
  LoaderOptions options;
  options.job = {.batch_size = 8, .seed = 3, .epochs = 3};
  options.threads = 2;
  return options;
}

TEST(RegistriesTest, AnOrderOfATestIsLoadedByItsName) {
  const BytesDataset dataset({.samples = kRegistrySamples, .sample_bytes_max = 5000});
  LoaderOptions options = Options();
  options.order.name = "backwards";
  EXPECT_EQ(Loader::Open(dataset.index(), options).status().message(),
            "order: got 'backwards', must be one of " + Orders().Names());
  const BackwardsFactory factory;
  const ScopedEntry<OrderFactory> added(Orders(), factory);
  auto loader = Loader::Open(dataset.index(), options);
  ASSERT_TRUE(loader.ok()) << loader.status().ToString();
  ASSERT_TRUE(loader.value()->Start({}).ok());
  std::uint64_t taken = 0;
  for (const RowList& rows : Drain(*loader.value())) {
    for (const auto& [id, bytes] : rows) {
      EXPECT_EQ(id, kRegistrySamples - 1 - taken++ % kRegistrySamples);
      EXPECT_EQ(bytes, dataset.Row(id));
    }
  }
  EXPECT_EQ(taken, 3 * kRegistrySamples);
}

TEST(RegistriesTest, APlacementOfATestDecidesWhatTiersKeep) {
  const BytesDataset dataset({.samples = kRegistrySamples, .sample_bytes_max = 5000});
  LoaderOptions options = Options();
  options.tiers = {.tiers = {{.capacity_bytes = 100'000}}, .placement = "seventh"};
  EXPECT_EQ(Loader::Open(dataset.index(), options).status().code(), StatusCode::kInvalidArgument);
  const placement::FactoryOf<SeventhPlacement> factory("seventh", /*clairvoyant=*/false);
  const ScopedEntry<PlacementFactory> added(Placements(), factory);
  auto loader = Loader::Open(dataset.index(), options);
  ASSERT_TRUE(loader.ok()) << loader.status().ToString();
  ASSERT_TRUE(loader.value()->Start({}).ok());
  std::uint64_t taken = 0;
  for (const RowList& rows : Drain(*loader.value())) {
    for (const auto& [id, bytes] : rows) EXPECT_EQ(bytes, dataset.Row(id));
    taken += rows.size();
  }
  EXPECT_EQ(taken, 3 * kRegistrySamples);
  const LoaderStats stats = loader.value()->stats().value();
  EXPECT_EQ(stats.tiers.at(0).stats.entries, 1u);
  EXPECT_EQ(stats.tiers.at(0).stats.inserts, 1u);
  EXPECT_EQ(stats.engine.tiers.uses.at(0).samples, 2u);  // In the second and the third epoch.
}

TEST(RegistriesTest, AWayToAskThatIsNoneListsThoseThereAre) {
  const BytesDataset dataset({.samples = kRegistrySamples, .sample_bytes_max = 5000});
  LoaderOptions options = Options();
  options.tiers = {.tiers = {{.capacity_bytes = 100'000}}, .ask = "everybody"};
  EXPECT_EQ(Loader::Open(dataset.index(), options).status().message(),
            "ask: got 'everybody', must be one of 'plan'");
}

TEST(RegistriesTest, WithoutAFormatNoScheduleIsWrittenOrRead) {
  const BytesDataset dataset({.samples = kRegistrySamples, .sample_bytes_max = 5000});
  LoaderOptions options = Options();
  EXPECT_EQ(WriteSchedule(dataset.index(), options, {.path = "a.schedule"}).status().ToString(),
            "FailedPrecondition: writing schedule a.schedule: this program has no format of "
            "schedules; add one to ScheduleFormats() first, as RegisterPapers() does");
  options.schedule = "a.schedule";
  EXPECT_EQ(Loader::Open(dataset.index(), options).status().message(),
            "schedule: got 'a.schedule', must be one of 'shared_deadline', 'fixed'");
}

TEST(RegistriesTest, AStoreOfATestIsFoundByTheSchemeOfTheRoot) {
  const TempFiles files;
  IndexContents contents;
  contents.sample_count = kRegistrySamples;
  contents.root = "letters://box";
  contents.fields.resize(1);
  contents.fields[0].info = {.name = "bytes", .kind = FieldKind::kBytes};
  for (std::uint64_t id = 0; id < kRegistrySamples; ++id) {
    const std::string name = "object-" + std::to_string(id) + static_cast<char>('a' + id % 26);
    contents.objects.push_back({.name = name, .size = 10 + id, .mtime_ns = 0});
    contents.fields[0].extents.push_back({ObjectId{id}, {5, 5 + id}});
  }
  const std::string path = files.folder() + "/index.hri";
  ASSERT_TRUE(WriteIndex(contents, path).ok());
  const std::shared_ptr<const Index> index = Index::Open(path).value();
  EXPECT_THAT(std::string(Loader::Open(index, Options()).status().message()),
              testing::HasSubstr("no store reads objects of letters://"));
  const LetterStoreFactory factory;
  const ScopedEntry<StoreFactory> added(Stores(), factory);
  auto loader = Loader::Open(index, Options());
  ASSERT_TRUE(loader.ok()) << loader.status().ToString();
  ASSERT_TRUE(loader.value()->Start({}).ok());
  std::uint64_t taken = 0;
  for (const RowList& rows : Drain(*loader.value())) {
    for (const auto& [id, bytes] : rows) {
      EXPECT_EQ(bytes, std::string(5 + id, static_cast<char>('a' + id % 26)));
      ++taken;
    }
  }
  EXPECT_EQ(taken, 3 * kRegistrySamples);
}

}  // namespace
}  // namespace headrace
