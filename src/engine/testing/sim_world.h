#pragma once

// What tests of the real engine under a virtual clock share: a drawn dataset of which some samples
// cannot be read, what must follow from that, and the seeds that a test runs.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/prng.h"
#include "engine/engine.h"
#include "engine/testing/sim_tiers.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"

namespace headrace {

inline constexpr std::uint64_t kWorldEventsMax = 1'000'000;  // A run beyond is stuck in a circle.

// The base of what a seed decides.
class SimWorld {
 public:
  // What tiers did; nothing without.
  [[nodiscard]] TierCounts tier_counts() const {
    return tiers_ == nullptr ? TierCounts() : tiers_->counts();
  }

 protected:
  SimWorld(std::uint64_t seed, std::uint32_t stream)
      : random_(seed, 0, RandomStream::kOrder, stream) {}

  void AddPayload(std::size_t column, std::uint64_t sample, std::uint64_t object,
                  std::uint64_t size, std::uint64_t gap_max, bool checksums) {
    std::string& bytes = index_.objects[object];
    bytes.append(random_.Below(3) == 0 ? random_.Below(gap_max) : 0, '.');
    const std::uint64_t offset = bytes.size();
    Prng payload(sample, column, RandomStream::kPack);
    for (std::uint64_t b = 0; b < size; ++b) bytes.push_back(static_cast<char>(payload.Next32()));
    auto& out = index_.columns[column];
    out.extents.push_back({ObjectId{object}, {offset, size}});
    if (!checksums) return;
    out.info.has_checksums = true;
    out.checksums.push_back(Hash64(std::as_bytes(std::span(bytes).subspan(offset, size))));
  }

  // Stores the objects. Some samples cannot be read, or (seen by their checksum) are not what was
  // indexed. `column()`: the one whose bytes are damaged.
  template <typename Column>
  void Store(bool checksums, const Column& column) {
    for (const auto& each : index_.columns) index_.infos.push_back(each.info);
    for (std::uint64_t o = 0; o < index_.objects.size(); ++o) {
      stored_[ObjectId{o}] = index_.objects[o];
    }
    if (index_.columns.empty() || random_.Below(2) == 0) return;
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      if (random_.Below(12) != 0) continue;
      const Extent& extent = index_.columns[column()].extents[i];
      if (extent.range.size == 0) continue;
      bad_.insert(SampleId{i});
      if (checksums && random_.Below(2) == 0) {
        stored_[extent.object][extent.range.offset] ^= 1;
      } else {
        unreadable_.push_back(extent);
      }
    }
  }

  void AddLabel() {
    schema_.push_back({.name = "label",
                       .index_field = index_.columns.size(),
                       .dtype = DType::kInt64,
                       .row_bytes = 8});
    index_.infos.push_back(
        {.name = "label", .kind = FieldKind::kArray, .dtype = DType::kInt64, .is_inline = true});
  }

  // An inline field whose values differ in length: a stand-in may need more room than was planned.
  void AddNote() {
    for (std::uint64_t i = 0; i < index_.samples; ++i) {
      index_.notes.emplace_back(i * 37 % 200, static_cast<char>('a' + i % 26));
    }
    schema_.push_back({.name = "note",
                       .index_field = index_.columns.size() + 1,
                       .ragged = true,
                       .is_text = true,
                       .row_bytes = 1});
    index_.infos.push_back({.name = "note", .kind = FieldKind::kText, .is_inline = true});
  }

  void MakeTiers() {
    // The test's, as the index is.
    const std::shared_ptr<const Index> index(std::shared_ptr<void>(), &index_);
    auto blocks = MakeIndexBlocks(index, /*block_samples=*/1);
    ASSERT_TRUE(blocks.ok()) << blocks.status().ToString();
    blocks_ = std::move(blocks).value();
    tiers_ = std::make_unique<SimTiers>(random_, loop_, blocks_);
  }

  SimRead Decide(const Extent& extent) {
    SimRead read{.delay_ns = static_cast<std::int64_t>(
                     random_.Below(static_cast<std::uint64_t>(delay_max_ns_))),
                 .shift_bytes = random_.Below(SimStore::kShiftBytesMax + 1)};
    if (random_.Below(50) == 0) read.delay_ns *= 100;  // a straggler
    for (const Extent& bad : unreadable_) {
      if (bad.object == extent.object && bad.range.offset < extent.range.end() &&
          extent.range.offset < bad.range.end()) {
        read.error = Status(StatusCode::kDataLoss, "planted");
      }
    }
    return read;
  }

  // Which sample stands in for `wanted`; nothing if none can be found. Straight from the
  // definition.
  std::optional<SampleId> Expected(std::uint64_t epoch, SampleId wanted) {
    if (!bad_.contains(wanted)) return wanted;
    if (options_.on_error == OnError::kRaise || index_.samples == 1) return std::nullopt;
    Prng prng(options_.seed, epoch, RandomStream::kSubstitute, Raw(wanted));
    for (std::uint32_t i = 0; i < options_.substitutes_max; ++i) {
      std::uint64_t drawn = prng.Below(index_.samples - 1);
      if (drawn >= Raw(wanted)) ++drawn;
      if (!bad_.contains(SampleId{drawn})) return SampleId{drawn};
    }
    return std::nullopt;
  }

  void CheckBatch(const Batch& batch, const Step& step) {
    ASSERT_EQ(batch.epoch, step.epoch);
    ASSERT_EQ(batch.step, step.step);
    ASSERT_EQ(batch.ends_epoch, step.ends_epoch);
    ASSERT_EQ(batch.samples.size(), step.deliveries.size());
    for (std::size_t slot = 0; slot < step.deliveries.size(); ++slot) {
      const auto expected = Expected(step.epoch, step.deliveries[slot].sample);
      ASSERT_TRUE(expected.has_value());
      ASSERT_EQ(batch.samples[slot], *expected);
      for (std::size_t c = 0; c < index_.columns.size(); ++c) {
        const std::span<std::byte> row = batch.row(schema_, c, slot);
        std::string bytes(reinterpret_cast<const char*>(row.data()), row.size());
        if (schema_[c].ragged && !schema_[c].codec->is_copy()) std::ranges::reverse(bytes);
        ASSERT_EQ(bytes, index_.Payload(c, *expected));
      }
      std::int64_t label = 0;
      std::memcpy(&label, batch.row(schema_, index_.columns.size(), slot).data(), sizeof(label));
      ASSERT_EQ(label, index_.labels[Raw(*expected)]);
      if (index_.notes.empty()) continue;
      const std::span<std::byte> note = batch.row(schema_, index_.columns.size() + 1, slot);
      ASSERT_EQ(std::string(reinterpret_cast<const char*>(note.data()), note.size()),
                index_.notes[Raw(*expected)]);
    }
  }

  // The error must be that of the lowest slot of `next`, the first step that fails; null: the plan
  // has ended.
  void CheckEnd(const Status& status, const Step* next) {
    if (next == nullptr) {
      ASSERT_TRUE(status.ok()) << status.ToString();
      return;
    }
    const auto failed = std::ranges::find_if(next->deliveries, [&](const Delivery& delivery) {
      return !Expected(next->epoch, delivery.sample).has_value();
    });
    ASSERT_NE(failed, next->deliveries.end()) << status.ToString();
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    const std::string place =
        "epoch " + std::to_string(next->epoch) + " step " + std::to_string(next->step) + " sample ";
    ASSERT_EQ(status.message().substr(0, place.size()), place);
    if (options_.on_error == OnError::kRaise) {
      const std::string id = std::to_string(Raw(failed->sample)) + " ";
      ASSERT_EQ(status.message().substr(place.size(), id.size()), id);
    }
  }

  Prng random_;
  TableIndex index_;
  std::unordered_map<ObjectId, std::string> stored_;
  std::uint64_t fixed_bytes_ = 0;
  std::set<SampleId> bad_;
  std::vector<Extent> unreadable_;
  std::vector<BatchField> schema_;
  EngineOptions options_;
  std::uint64_t hold_share_ = 0;  // percent of batches that the consumer keeps
  int cores_ = 1;
  std::int64_t delay_max_ns_ = 0;
  bool leaves_ = false;
  bool reads_now_ = false;
  SimLoop loop_;
  std::shared_ptr<const BlockMap> blocks_;  // what tiers keep as one
  std::unique_ptr<SimTiers> tiers_;         // null: none
  bool done_ = false;
};

inline std::optional<std::uint64_t> SeedFrom(const char* variable) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): one thread
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 0);
}

// Runs the worlds of `count` seeds, and the one that HEADRACE_SEED adds; or the one of
// HEADRACE_ONLY_SEED alone, to replay a failure.
template <typename World>
void RunSeeds(std::uint64_t count) {
  const std::optional<std::uint64_t> only = SeedFrom("HEADRACE_ONLY_SEED");
  const std::optional<std::uint64_t> extra = SeedFrom("HEADRACE_SEED");
  std::vector<std::uint64_t> seeds;
  SeenOfTiers seen;
  if (only.has_value()) {
    seeds.push_back(*only);
  } else {
    for (std::uint64_t seed = 0; seed < count; ++seed) seeds.push_back(seed);
    if (extra.has_value()) seeds.push_back(*extra);
  }
  for (const std::uint64_t seed : seeds) {
    SCOPED_TRACE("replay with HEADRACE_ONLY_SEED=" + std::to_string(seed));
    World world(seed);
    world.Run();
    if (::testing::Test::HasFailure()) return;
    seen.Add(world.tier_counts());
  }
  // Seeds that never meet what they are for prove nothing.
  if (!only.has_value()) {
    EXPECT_EQ(seen.Missing(), "");
  }
}

}  // namespace headrace
