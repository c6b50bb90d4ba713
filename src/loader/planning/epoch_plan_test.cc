#include "loader/planning/epoch_plan.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/registry/testing/scoped_entry.h"
#include "base/units.h"
#include "gtest/gtest.h"
#include "headrace/loader.h"
#include "loader/testing/bytes_dataset.h"
#include "store/memory_store.h"
#include "store/objects/object_store.h"
#include "store/store_table.h"

namespace headrace {
namespace {

// A store that answers its first read with Unavailable. The engine asks once more for each sample.
class BusyOnceStore final : public ByteStore {
 public:
  explicit BusyOnceStore(std::unordered_map<ObjectId, std::string> objects)
      : objects_(std::move(objects)) {}

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override {
    for (ReadRequest& request : requests) {
      if (!is_busy_.exchange(false)) continue;
      request.done(Status(StatusCode::kUnavailable, "busy"));
      request.done = nullptr;
    }
    std::erase_if(requests, [](const ReadRequest& request) { return request.done == nullptr; });
    objects_.Read(std::move(requests), std::move(stop));
  }
  [[nodiscard]] StoreStats stats() const override { return objects_.stats(); }

 private:
  MemoryStore objects_;
  std::atomic<bool> is_busy_ = true;
};

// Objects of "far://box", which lie in a file.
class FarBoxFactory final : public StoreFactory {
 public:
  FarBoxFactory(std::string file, StoreNeeds needs, bool busy_once = false)
      : file_(std::move(file)), needs_(needs), busy_once_(busy_once) {}

  [[nodiscard]] std::string_view name() const override { return "far_box"; }
  [[nodiscard]] bool Suits(const StoreRequest& request) const override {
    return request.scheme == "far";
  }
  [[nodiscard]] StoreNeeds needs() const override { return needs_; }
  [[nodiscard]] Result<StoreParts> Open(const StoreRequest&) const override {
    std::unordered_map<ObjectId, std::string> objects;
    std::ifstream file(file_, std::ios::binary);
    objects.emplace(ObjectId{0}, std::string(std::istreambuf_iterator<char>(file), {}));
    StoreParts parts;
    if (busy_once_) {
      parts.store = std::make_unique<BusyOnceStore>(std::move(objects));
    } else {
      parts.store = std::make_unique<MemoryStore>(std::move(objects));
    }
    return parts;
  }

 private:
  const std::string file_;
  const StoreNeeds needs_;
  const bool busy_once_;
};

LoaderOptions OneEpoch(const std::string& order) {
  LoaderOptions options;
  options.job = {.batch_size = 40, .seed = 3, .epochs = 1};
  options.order.name = order;
  options.threads = 2;
  return options;
}

struct Requests {
  std::uint64_t reads = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const Requests&, const Requests&) = default;
};

Requests Planned(const BytesDataset& dataset, const LoaderOptions& options) {
  Requests requests;
  const auto planner = EpochPlanner::Make(dataset.index(), options);
  EXPECT_TRUE(planner.ok()) << planner.status().ToString();
  while (const std::optional<PlannedEpoch> epoch = planner.value()->Next()) {
    for (const auto& [bytes, count] : epoch->storage) {
      requests.reads += count;
      requests.bytes += bytes * count;
    }
  }
  return requests;
}

Requests Made(const BytesDataset& dataset, const LoaderOptions& options) {
  auto loader = Loader::Open(dataset.index(), options);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  EXPECT_TRUE(loader.value()->Start({}).ok());
  std::uint64_t rows = 0;
  for (const RowList& batch : Drain(*loader.value())) {
    for (const auto& [id, bytes] : batch) EXPECT_EQ(bytes, dataset.Row(id));
    rows += batch.size();
  }
  EXPECT_GT(rows, 0U);
  const StoreStats stats = loader.value()->stats().value().store;
  return {.reads = stats.reads, .bytes = stats.bytes};
}

TEST(EpochPlanTest, CountsTheRequestsThatTheStoreGets) {
  const BytesDataset dataset({.samples = 400,
                              .sample_bytes_max = 3000,
                              .blocks = {100, 100, 150, 50},
                              .root = "far://box"});
  const std::string file = dataset.folder() + "/all";
  const StoreNeeds scattered = {.row_gap_bytes = 8 * kKiB,
                                .row_read_bytes_max = 50 * kKiB,
                                .block_gap_bytes = 8 * kKiB,
                                .block_read_bytes_max = 50 * kKiB,
                                .read_growth_max = 2};
  for (const StoreNeeds& needs : {StoreNeeds(), kObjectStoreNeeds, scattered}) {
    const FarBoxFactory factory(file, needs);
    const ScopedEntry<StoreFactory> added(Stores(), factory);
    for (const std::string order : {"exact", "epoch"}) {
      const LoaderOptions options = OneEpoch(order);
      const Requests planned = Planned(dataset, options);
      const Requests made = Made(dataset, options);
      EXPECT_EQ(planned.reads, made.reads) << order << " " << needs.row_gap_bytes;
      EXPECT_EQ(planned.bytes, made.bytes) << order << " " << needs.row_gap_bytes;
    }
  }
}

TEST(EpochPlanTest, AMergedReadIsAtMostTwiceWhatIsWanted) {
  const BytesDataset dataset({.samples = 400, .sample_bytes_max = 3000, .root = "far://box"});
  const std::string file = dataset.folder() + "/all";
  const auto planned = [&](StoreNeeds needs) {
    const FarBoxFactory factory(file, needs);
    const ScopedEntry<StoreFactory> added(Stores(), factory);
    return Planned(dataset, OneEpoch("exact"));
  };
  StoreNeeds needs = kObjectStoreNeeds;
  const Requests twice = planned(needs);
  needs.read_growth_max = 0;
  const Requests any = planned(needs);
  needs.row_gap_bytes = 0;
  const Requests wanted = planned(needs);
  EXPECT_EQ(any.reads, 20U) << "two of each step, as memory allows, and they have nearly all";
  EXPECT_GT(any.bytes, 8 * wanted.bytes);
  EXPECT_LE(twice.bytes, 2 * wanted.bytes);
  EXPECT_GT(twice.bytes, wanted.bytes);
  EXPECT_LT(twice.reads, wanted.reads);
}

TEST(EpochPlanTest, NobodyElseRepeatsReadsOfAStoreThatRepeatsThem) {
  const BytesDataset dataset({.samples = 40, .sample_bytes_max = 3000, .root = "far://box"});
  StoreNeeds needs;
  for (const bool retries : {false, true}) {
    needs.retries_itself = retries;
    const FarBoxFactory factory(dataset.folder() + "/all", needs, /*busy_once=*/true);
    const ScopedEntry<StoreFactory> added(Stores(), factory);
    auto loader = Loader::Open(dataset.index(), OneEpoch("exact"));
    ASSERT_TRUE(loader.ok()) << loader.status().ToString();
    ASSERT_TRUE(loader.value()->Start({}).ok());
    ASSERT_NE(TakeOne(*loader.value()), nullptr);
    EXPECT_EQ(loader.value()->stats().value().store.retries, retries ? 0U : 1U);
  }
}

}  // namespace
}  // namespace headrace
