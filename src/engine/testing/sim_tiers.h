#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "engine/tiers/tier_cache.h"
#include "gtest/gtest.h"
#include "headrace/machine_model.h"
#include "plan/placement/placement.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "tier/ram_tier.h"
#include "tier/testing/sim_tier.h"
#include "tier/tier.h"

namespace headrace {

// The tiers of a simulated node, drawn: how many, how large, how unreliable, and the placement that
// fills them. They live over several engines, as those of a loader do.
class SimTiers {
 public:
  using Uses = std::function<Result<std::unique_ptr<UseStream>>()>;

  SimTiers(Prng& random, SimLoop& loop, std::shared_ptr<const BlockMap> blocks)
      : random_(random), blocks_(std::move(blocks)) {
    executor_ = std::make_unique<SimExecutor>(loop, 2, [this](std::uint64_t) {
      return static_cast<std::int64_t>(random_.Below(3'000'000));
    });
    const auto all = Placements().rows();
    placement_ = all[random.Below(all.size())];
    const std::uint64_t unit = blocks_->unit_bytes();
    for (std::uint64_t left = 1 + random.Below(3); left > 0; --left) {
      const std::uint64_t units = 1 + random.Below(blocks_->total_units());
      capacity_units_.push_back(units);
      if (random.Below(2) == 0) {
        auto ram = RamTier::Make(units * unit, unit);
        EXPECT_TRUE(ram.ok()) << ram.status().ToString();
        tiers_.push_back(std::move(ram).value());
        continue;
      }
      const bool faulty = random.Below(2) == 0;
      SimTierOptions options{.capacity_bytes = units * unit, .unit_bytes = unit};
      options.seed = random.Next64();
      options.insert_refused = faulty ? 0.1 : 0;
      options.insert_failed = faulty && random.Below(4) == 0 ? 0.02 : 0;
      options.read_failed = faulty && random.Below(4) == 0 ? 0.02 : 0;
      options.corrupt = faulty ? 0.1 : 0;
      tiers_.push_back(std::make_unique<SimTier>(*executor_, options));
    }
    if (random.Below(3) == 0) DrawModel();
  }

  // Null: there is none, and tiers are before storage.
  [[nodiscard]] const MachineModel* model() const { return model_ ? &*model_ : nullptr; }

  // For an engine whose stream begins where `uses` does.
  std::unique_ptr<TierCache> Begin(Uses uses, std::uint32_t nodes, std::uint32_t node) {
    const std::vector<Tier*> tiers = pointers();
    const auto held = TakeHeldBlocks(tiers, *blocks_, capacity_units_);
    PlacementRequest request{.blocks = blocks_, .node = node};
    request.capacity_units.assign(nodes, capacity_units_);
    request.held.assign(nodes, std::vector<std::vector<std::uint32_t>>(tiers.size()));
    request.held[node] = held;
    request.horizon_epochs = 1 + random_.Below(4);
    request.uses = std::move(uses);
    Result<std::unique_ptr<Placement>> placement = placement_->Make(std::move(request));
    EXPECT_TRUE(placement.ok()) << placement.status().ToString();
    return std::make_unique<TierCache>(tiers, blocks_, std::move(placement).value(), held);
  }

  // Adds what one engine did; what all did.
  void Count(const TierCounts& counts) {
    counts_.uses.resize(tiers_.size());
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      counts_.uses[i].samples += counts.uses[i].samples;
      counts_.uses[i].ahead += counts.uses[i].ahead;
    }
    counts_.waits += counts.waits;
    counts_.fetched_ahead += counts.fetched_ahead;
    counts_.moved += counts.moved;
    counts_.not_kept += counts.not_kept;
    counts_.fallbacks += counts.fallbacks;
    counts_.tiers_passed += counts.tiers_passed;
  }
  [[nodiscard]] const TierCounts& counts() const { return counts_; }
  [[nodiscard]] std::vector<Tier*> pointers() const {
    std::vector<Tier*> tiers;
    for (const std::unique_ptr<Tier>& tier : tiers_) tiers.push_back(tier.get());
    return tiers;
  }

 private:
  void DrawModel() {
    const auto rate = [this] {
      const double drawn = 1e6 * static_cast<double>(1 + random_.Below(1000));
      return SizedRates::OfAnySize(Curve::Make({{.users = 1, .rate = drawn}}).value());
    };
    model_ = MachineModel{.storage = {.rate = rate()}};
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      model_->tiers.push_back({.read = rate(), .write = {}});
    }
  }

  Prng& random_;
  const std::shared_ptr<const BlockMap> blocks_;
  std::unique_ptr<SimExecutor> executor_;  // outlives the tiers
  const PlacementFactory* placement_ = nullptr;
  std::vector<std::uint64_t> capacity_units_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::optional<MachineModel> model_;
  TierCounts counts_;
};

// What tiers did over many seeds.
class SeenOfTiers {
 public:
  void Add(const TierCounts& counts) {
    for (const TierUses& tier : counts.uses) {
      seen_["uses"] += tier.samples;
      seen_["uses ready on time"] += tier.ahead;
    }
    seen_["waits"] += counts.waits;
    seen_["fetched ahead"] += counts.fetched_ahead;
    seen_["moved"] += counts.moved;
    seen_["not kept"] += counts.not_kept;
    seen_["fallbacks"] += counts.fallbacks;
    seen_["tiers passed"] += counts.tiers_passed;
  }

  // What was never seen.
  [[nodiscard]] std::string Missing() const {
    std::string missing;
    for (const auto& [name, count] : seen_) {
      if (count == 0) missing += name + " ";
    }
    return missing;
  }

 private:
  std::map<std::string, std::uint64_t> seen_;
};

// The uses of one node that runs `steps`, sample by sample: of what block reads keep, then of what
// is delivered without.
class ListedUses final : public UseStream {
 public:
  explicit ListedUses(std::vector<Step> steps) : steps_(std::move(steps)) {}

  bool Next(StepUses& uses) override {
    if (next_ == steps_.size()) return false;
    const Step& step = steps_[next_++];
    uses = {.at = {.epoch = step.epoch, .step = step.step}, .ends_epoch = step.ends_epoch};
    for (const BlockRead& read : step.reads) {
      const std::size_t kept = read.kept.empty() ? read.count : read.kept.size();
      for (std::uint32_t i = 0; i < kept; ++i) {
        const std::uint64_t place = read.kept.empty() ? i : read.kept[i];
        uses.blocks.push_back(static_cast<std::uint32_t>(Raw(read.first) + place));
      }
    }
    for (const Delivery& delivery : step.deliveries) {
      if (delivery.block_read != kNoBlockRead) continue;
      uses.blocks.push_back(static_cast<std::uint32_t>(Raw(delivery.sample)));
    }
    uses.node_ends = {uses.blocks.size()};
    return true;
  }

 private:
  const std::vector<Step> steps_;
  std::size_t next_ = 0;
};

}  // namespace headrace
