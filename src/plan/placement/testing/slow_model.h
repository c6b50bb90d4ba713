#pragma once

// Slow reference planners: all steps are known, and every question is answered by a scan. Written
// from the headers, not from the planners.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/placement/testing/cases.h"

namespace headrace {

class SlowModel {
 public:
  explicit SlowModel(const Case& made)
      : made_(made), tier_(made.nodes(), std::vector<TierNumber>(made.units.size(), kNoTier)) {
    for (std::uint32_t node = 0; node < made.request.held.size(); ++node) {
      for (std::size_t tier = 0; tier < made.request.held[node].size(); ++tier) {
        for (const std::uint32_t block : made.request.held[node][tier]) {
          tier_[node][block] = static_cast<TierNumber>(tier);
        }
      }
    }
    ops_.resize(made.nodes());
  }
  virtual ~SlowModel() = default;

  // The steps of all nodes for step `i` of the run.
  std::vector<PlacedStep> Next(std::size_t i) {
    const StepUses& uses = (*made_.steps)[i];
    std::vector<PlacedStep> steps(made_.nodes());
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      steps[node].at = uses.at;
      for (const std::uint32_t block : uses.OfNode(node)) {
        steps[node].uses.push_back(Find(node, block));
      }
    }
    Apply(i);
    for (std::uint32_t node = 0; node < made_.nodes(); ++node) {
      steps[node].ops = std::exchange(ops_[node], {});
      const auto own = uses.OfNode(node);
      for (CacheOp& op : steps[node].ops) {
        op.ahead = op.from == kNoTier && std::ranges::find(own, op.block) == own.end();
      }
    }
    return steps;
  }

 protected:
  // Changes the tiers for one step.
  virtual void Apply(std::size_t i) = 0;
  // Whether uses can be found at peers.
  [[nodiscard]] virtual bool knows_peers() const { return true; }

  [[nodiscard]] PlannedUse Find(std::uint32_t node, std::uint32_t block) const {
    PlannedUse use{.block = block, .tier = tier_[node][block]};
    if (use.tier != kNoTier || !knows_peers()) return use;
    std::vector<std::uint32_t> others;
    for (std::uint32_t other = node + 1; other < made_.nodes(); ++other) others.push_back(other);
    for (std::uint32_t other = 0; other < node; ++other) others.push_back(other);
    for (const std::uint32_t other : others) {
      if (tier_[other][block] == kNoTier) continue;
      use.peer = other;
      use.peer_tier = tier_[other][block];
      use.at_peer = true;
      break;
    }
    return use;
  }

  void Move(std::uint32_t node, std::uint32_t block, TierNumber to) {
    if (tier_[node][block] == to) return;
    ops_[node].push_back({.block = block, .from = tier_[node][block], .to = to});
    tier_[node][block] = to;
  }
  [[nodiscard]] bool Has(std::uint32_t node, std::uint32_t block) const {
    return tier_[node][block] != kNoTier;
  }
  [[nodiscard]] std::size_t tiers(std::uint32_t node) const {
    return made_.request.capacity_units[node].size();
  }
  [[nodiscard]] std::uint64_t Capacity(std::uint32_t node, std::size_t tier) const {
    return made_.request.capacity_units[node][tier];
  }
  // Room of a tier whose blocks are marked in `in`.
  [[nodiscard]] std::uint64_t Room(std::uint32_t node, std::size_t tier,
                                   const std::vector<TierNumber>& in) const {
    std::uint64_t room = Capacity(node, tier);
    for (std::size_t block = 0; block < in.size(); ++block) {
      if (in[block] == tier) room -= made_.units[block];
    }
    return room;
  }
  [[nodiscard]] std::uint64_t Room(std::uint32_t node, std::size_t tier) const {
    return Room(node, tier, tier_[node]);
  }
  [[nodiscard]] TierNumber FirstWithRoom(std::uint32_t node, std::uint32_t block,
                                         const std::vector<TierNumber>& in) const {
    for (std::size_t tier = 0; tier < tiers(node); ++tier) {
      if (Room(node, tier, in) >= made_.units[block]) return static_cast<TierNumber>(tier);
    }
    return kNoTier;
  }
  // Evicts, with the first step, held copies that an earlier node holds, too.
  void DropDoubled() {
    for (std::uint32_t node = 0; node < made_.request.held.size(); ++node) {
      for (const auto& tier : made_.request.held[node]) {
        for (const std::uint32_t block : tier) {
          for (std::uint32_t before = 0; before < node; ++before) {
            if (Has(before, block)) Move(node, block, kNoTier);
          }
        }
      }
    }
  }
  [[nodiscard]] std::uint32_t blocks() const {
    return static_cast<std::uint32_t>(made_.units.size());
  }
  [[nodiscard]] const StepUses& Uses(std::size_t i) const { return (*made_.steps)[i]; }

  const Case& made_;
  std::vector<std::vector<TierNumber>> tier_;  // [node][block]

 private:
  std::vector<std::vector<CacheOp>> ops_;  // of the step, by node
};

inline std::string Text(const PlacedStep& step) {
  std::string text;
  for (const PlannedUse& use : step.uses) {
    text += " use " + std::to_string(use.block) + "@" + std::to_string(use.tier) +
            (use.at_peer ? " peer " + std::to_string(use.peer) : "");
  }
  for (const CacheOp& op : step.ops) {
    text += " op " + std::to_string(op.block) + ":" + std::to_string(op.from) + ">" +
            std::to_string(op.to) + (op.ahead ? " ahead" : "");
  }
  return text;
}

// Whether the policy's plan equals the model's for every node and step.
template <typename Model>
void ExpectAsModel(std::string_view policy, const Case& made) {
  Model model(made);
  std::vector<std::unique_ptr<Placement>> plans;
  for (std::uint32_t node = 0; node < made.nodes(); ++node) {
    plans.push_back(MakePlacement(policy, made.Of(node)));
  }
  for (std::size_t i = 0; i < made.steps->size(); ++i) {
    const std::vector<PlacedStep> expected = model.Next(i);
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      const std::optional<PlacedStep> step = plans[node]->Next();
      ASSERT_TRUE(step.has_value());
      ASSERT_EQ(step->at, expected[node].at);
      const bool same = step->uses == expected[node].uses && step->ops == expected[node].ops;
      ASSERT_TRUE(same) << "seed " << made.request.seed << " step " << i << " node " << node
                        << "\nplanned:" << Text(*step) << "\nmodel:  " << Text(expected[node]);
    }
  }
}

template <typename Model>
void ExpectAsModel(std::string_view policy, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds && !testing::Test::HasFatalFailure(); ++seed) {
    ExpectAsModel<Model>(policy, RandomCase(seed));
  }
}

}  // namespace headrace
