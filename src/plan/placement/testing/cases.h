#pragma once

// Planning jobs small enough for a slow reference planner, and the replay of a plan.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "plan/placement/placement.h"
#include "plan/placement/testing/fixed_uses.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {

// Blocks of one sample each, of the units given.
inline std::shared_ptr<const BlockMap> BlocksOf(std::vector<std::uint32_t> units) {
  const std::vector<std::uint32_t> ones(units.size(), 1);
  return std::make_shared<OddBlocks>(ones, std::move(units));
}

struct Case {
  std::vector<std::uint32_t> units;  // of each block
  std::shared_ptr<const Steps> steps;
  PlacementRequest request;

  [[nodiscard]] std::uint32_t nodes() const {
    return static_cast<std::uint32_t>(request.capacity_units.size());
  }
  [[nodiscard]] PlacementRequest Of(std::uint32_t node) const {
    PlacementRequest copy = request;
    copy.node = node;
    return copy;
  }
};

inline void SetSteps(Case& made, Steps steps) {
  made.steps = std::make_shared<const Steps>(std::move(steps));
  made.request.uses = [all = made.steps]() -> Result<std::unique_ptr<UseStream>> {
    return std::unique_ptr<UseStream>(std::make_unique<FixedUses>(all));
  };
}

// Small random numbers. Not for uses that need a uniform distribution.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : prng_(seed, 0, RandomStream::kAugment) {}
  std::uint32_t In(std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(prng_.Below(most - least + 1));
  }
  bool OneIn(std::uint32_t chances) { return In(1, chances) == 1; }

 private:
  Prng prng_;
};

// Epochs over `blocks` blocks: shuffled, each once; some epochs omit blocks, some repeat blocks, as
// orders that read blocks do. Steps are uneven.
inline Steps RandomSteps(Dice& dice, std::uint32_t blocks, std::uint32_t nodes) {
  Steps steps;
  const std::uint32_t epochs = dice.In(1, 6);
  const std::uint32_t per_node = dice.In(1, 4);
  const bool odd = dice.OneIn(2);
  const std::uint64_t enter = dice.OneIn(3) ? dice.In(0, 3) : 0;  // step of the first epoch
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::uint32_t> order(blocks);
    for (std::uint32_t i = 0; i < blocks; ++i) order[i] = i;
    for (std::uint32_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[dice.In(0, i - 1)]);
    if (odd && dice.OneIn(2)) order.resize(dice.In(1, blocks));
    if (odd && dice.OneIn(2)) order.push_back(dice.In(0, blocks - 1));
    std::size_t next = 0;
    for (std::uint64_t step = 0; next < order.size(); ++step) {
      StepUses uses{.at = {.epoch = epoch, .step = step}};
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const std::uint32_t rows = odd ? dice.In(0, per_node) : per_node;
        for (std::uint32_t row = 0; row < rows && next < order.size(); ++row) {
          uses.blocks.push_back(order[next++]);
        }
        uses.node_ends.push_back(uses.blocks.size());
      }
      uses.ends_epoch = next == order.size();
      if (epoch > 0 || step >= enter) steps.push_back(std::move(uses));
    }
  }
  return steps;
}

// A job of 1 to 6 nodes with up to 3 tiers each, uneven sizes, tiny, huge and zero capacities, and
// sometimes tiers that hold blocks at the start.
inline Case RandomCase(std::uint64_t seed, std::uint32_t nodes_max = 6) {
  Dice dice(seed);
  Case made;
  const std::uint32_t blocks = dice.In(1, 40);
  const bool even = dice.OneIn(3);
  std::uint32_t total = 0;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    made.units.push_back(even ? 1 : dice.OneIn(8) ? dice.In(10, 30) : dice.In(1, 6));
    total += made.units.back();
  }
  const std::uint32_t nodes = dice.In(1, nodes_max);
  const std::uint32_t tiers = dice.In(0, 3);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    std::vector<std::uint64_t> capacity;
    for (std::uint32_t tier = 0; tier < tiers; ++tier) {
      const std::uint32_t most = dice.OneIn(6) ? 0 : dice.OneIn(6) ? 2 * total : total / nodes;
      capacity.push_back(dice.In(0, most));
    }
    made.request.capacity_units.push_back(std::move(capacity));
  }
  made.request.blocks = BlocksOf(made.units);
  made.request.horizon_epochs = dice.In(1, 4);
  made.request.seed = seed;
  if (dice.OneIn(2)) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      std::vector<std::vector<std::uint32_t>> held(tiers);
      std::vector<std::uint64_t> room = made.request.capacity_units[node];
      for (std::uint32_t block = 0; block < blocks && tiers > 0; ++block) {
        const std::uint32_t tier = dice.In(0, tiers - 1);
        if (dice.OneIn(2) || room[tier] < made.units[block]) continue;
        room[tier] -= made.units[block];
        held[tier].push_back(block);
      }
      made.request.held.push_back(std::move(held));
    }
  }
  SetSteps(made, RandomSteps(dice, blocks, nodes));
  return made;
}

// Tracks where every block is from the ops; checks what PlacedStep promises.
class Replay {
 public:
  explicit Replay(const Case& made)
      : units_(made.units),
        capacity_(made.request.capacity_units),
        tier_(capacity_.size(), std::vector<TierNumber>(units_.size(), kNoTier)),
        used_(capacity_.size()) {
    for (std::size_t node = 0; node < capacity_.size(); ++node) {
      used_[node].resize(capacity_[node].size());
      if (node >= made.request.held.size()) continue;
      for (std::size_t tier = 0; tier < made.request.held[node].size(); ++tier) {
        for (const std::uint32_t block : made.request.held[node][tier]) {
          tier_[node][block] = static_cast<TierNumber>(tier);
          used_[node][tier] += units_[block];
        }
      }
    }
  }

  // Checks the uses of a step against the tiers before its ops.
  void CheckUses(const StepUses& uses, const PlacedStep& step, std::uint32_t node) const {
    ASSERT_EQ(step.at, uses.at);
    const auto own = uses.OfNode(node);
    ASSERT_EQ(step.uses.size(), own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(step.uses[i].block, own[i]);
      ASSERT_EQ(step.uses[i].tier, tier_[node][own[i]]);
      if (!step.uses[i].at_peer) continue;
      ASSERT_EQ(step.uses[i].tier, kNoTier);
      ASSERT_NE(step.uses[i].peer, node);
      ASSERT_NE(tier_[step.uses[i].peer][own[i]], kNoTier);
    }
  }

  void Apply(const StepUses& uses, const PlacedStep& step, std::uint32_t node) {
    for (const CacheOp& op : step.ops) {
      TierNumber& tier = tier_[node][op.block];
      ASSERT_EQ(op.from, tier);
      ASSERT_NE(op.from, op.to);
      const auto own = uses.OfNode(node);
      const bool used = std::ranges::find(own, op.block) != own.end();
      ASSERT_EQ(op.ahead, op.from == kNoTier && !used) << "block " << op.block;
      if (op.from != kNoTier) used_[node][op.from] -= units_[op.block];
      if (op.to != kNoTier) {
        used_[node][op.to] += units_[op.block];
        ASSERT_LE(used_[node][op.to], capacity_[node][op.to]);
      }
      tier = op.to;
    }
  }

  [[nodiscard]] TierNumber Tier(std::uint32_t node, std::uint32_t block) const {
    return tier_[node][block];
  }
  [[nodiscard]] std::uint64_t Used(std::uint32_t node, std::size_t tier) const {
    return used_[node][tier];
  }
  // Number of nodes that have the block.
  [[nodiscard]] std::uint32_t Copies(std::uint32_t block) const {
    std::uint32_t copies = 0;
    for (const auto& node : tier_) copies += node[block] != kNoTier ? 1 : 0;
    return copies;
  }

 private:
  const std::vector<std::uint32_t> units_;
  const std::vector<std::vector<std::uint64_t>> capacity_;
  std::vector<std::vector<TierNumber>> tier_;     // [node][block]
  std::vector<std::vector<std::uint64_t>> used_;  // [node][tier]
};

inline std::unique_ptr<Placement> MakePlacement(std::string_view policy, PlacementRequest request) {
  const auto factory = Placements().Get(policy);
  EXPECT_TRUE(factory.ok()) << factory.status().ToString();
  if (!factory.ok()) return nullptr;
  auto made = factory.value()->Make(std::move(request));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(made).value() : nullptr;
}

}  // namespace headrace
