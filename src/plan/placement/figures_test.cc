// Results of placements on shuffled epochs, compared with known figures: provable bounds, and
// simulations of the published policies.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

using Counters = std::map<std::string, double>;

constexpr std::uint32_t kEvenSamples = 12'000;

// One rank a node, the order `exact`, one tier of `capacity` units on every node.
PlacementRequest RequestOfUnits(std::vector<std::uint32_t> units, std::uint32_t nodes,
                                std::uint64_t epochs, std::uint64_t capacity) {
  OrderRequest order;
  order.job = {.sample_count = units.size(),
               .batch_size = 16,
               .world_size = nodes,
               .seed = 11,
               .epochs = epochs};
  PlacementRequest request{.blocks = BlocksOf(std::move(units)), .horizon_epochs = epochs};
  request.capacity_units.assign(nodes, std::vector<std::uint64_t>(1, capacity));
  request.uses = [order, blocks = request.blocks, nodes] {
    return MakeOrderUses(ExactOrderFactory(), order, blocks,
                         {.world_size = nodes, .ranks_per_node = 1}, {});
  };
  return request;
}

PlacementRequest EvenJob(std::uint32_t nodes, std::uint64_t epochs, std::uint64_t capacity) {
  return RequestOfUnits(std::vector<std::uint32_t>(kEvenSamples, 1), nodes, epochs, capacity);
}

Counters RunJob(std::string_view policy, const PlacementRequest& request) {
  const auto plan = MakePlacement(policy, request);
  while (plan->Next().has_value()) {
  }
  return plan->counters();
}

TEST(FiguresTest, OnOneNodeReuseIsTheShareThatFitsAndNeverMore) {
  std::vector<std::uint32_t> units(5000);
  std::uint64_t total = 0;
  Dice dice(1);
  for (std::uint32_t& each : units) total += each = dice.In(1, 40);
  const double share = 0.3;
  const auto capacity = static_cast<std::uint64_t>(share * static_cast<double>(total));
  for (const PlacementFactory* factory : Placements().rows()) {
    const auto plan = MakePlacement(factory->name(), RequestOfUnits(units, 1, 7, capacity));
    double before = 0;
    double later = 0;
    while (const auto step = plan->Next()) {
      if ((step->at.step + 1) * 16 < units.size()) continue;  // not the last of its epoch
      const double now = plan->counters()["reuse_units"];
      // Each block is used once an epoch: a block that is used again was in the tier between two
      // epochs.
      ASSERT_LE(now - before, static_cast<double>(capacity)) << factory->name();
      if (step->at.epoch > 0) later += now - before;
      before = now;
    }
    const double reuse = later / 6 / static_cast<double>(total);
    if (factory->name() == "lru") {
      EXPECT_LT(reuse, 0.08);
    } else if (factory->name() != "none") {
      EXPECT_NEAR(reuse, share, 0.005) << factory->name();
    }
  }
}

TEST(FiguresTest, FrequencyLeavesBlocksOutThatCoordinatedCovers) {
  const std::map<std::uint32_t, double> coverage = {{4, 0.82}, {16, 0.71}, {64, 0.67}};
  for (const auto& [nodes, share] : coverage) {
    const PlacementRequest request = EvenJob(nodes, 90, kEvenSamples / nodes);
    Counters frequency = RunJob("frequency", request);
    Counters coordinated = RunJob("coordinated", request);
    EXPECT_NEAR(frequency["coverage_units"] / kEvenSamples, share, 0.01) << nodes << " nodes";
    EXPECT_GE(coordinated["coverage_units"], kEvenSamples - nodes) << nodes << " nodes";
    const double lost = (frequency["local"] - coordinated["local"]) / frequency["uses"];
    EXPECT_LE(lost, 0.012) << nodes << " nodes";
    EXPECT_GT(lost, 0) << nodes << " nodes";
    std::printf("| %u | %.3f | %.3f | %.4f |\n", nodes, frequency["coverage_units"] / kEvenSamples,
                coordinated["coverage_units"] / kEvenSamples, lost);
  }
}

TEST(FiguresTest, BeladyHitsFarMoreOfANodesUsesThanFrequency) {
  const auto reuse = [](std::string_view policy, std::uint32_t nodes, double share) {
    Counters all =
        RunJob(policy, EvenJob(nodes, 90, static_cast<std::uint64_t>(share * kEvenSamples)));
    return all["reuse"] / all["uses"];
  };
  const auto expect = [&](std::uint32_t nodes, double share, double belady, double frequency) {
    const double by_belady = reuse("belady", nodes, share);
    const double by_frequency = reuse("frequency", nodes, share);
    EXPECT_NEAR(by_belady, belady, 0.01);
    EXPECT_NEAR(by_frequency, frequency, 0.01);
    std::printf("| %u, %.1f %% | %.3f | %.3f |\n", nodes, share * 100, by_belady, by_frequency);
  };
  expect(4, 0.075, 0.271, 0.098);
  expect(16, 0.01875, 0.157, 0.036);
}

TEST(FiguresTest, ReuseKeepsTheLastCopiesWhereTheyFit) {
  // All blocks fit once, so after an epoch storage is not read again.
  for (const std::uint32_t nodes : {2U, 5U}) {
    PlacementRequest request = EvenJob(nodes, 4, kEvenSamples / nodes + kEvenSamples / 50);
    const auto plan = MakePlacement("reuse", request);
    double storage = 0;
    while (const auto step = plan->Next()) {
      if (step->at == Position{.epoch = 1, .step = 0}) storage = plan->counters()["storage"];
    }
    Counters all = plan->counters();
    EXPECT_LE(all["storage"] - storage, 0.001 * all["uses"]) << nodes << " nodes";
    EXPECT_GE(storage, 1);
  }
}

// No inserted block may be needed later than a block that was evicted for it.
TEST(FiguresTest, NothingNeededSoonerGoesForWhatIsNeededLater) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Case made = RandomCase(seed, 1);
    for (auto& tiers : made.request.capacity_units) {
      while (tiers.size() > 1) tiers.pop_back();
    }
    made.request.held.clear();
    made.request.horizon_epochs = 10;
    const auto next = [&](std::size_t after, std::uint32_t block) {
      for (std::size_t i = after + 1; i < made.steps->size(); ++i) {
        const auto& blocks = (*made.steps)[i].blocks;
        if (std::ranges::find(blocks, block) != blocks.end()) return i;
      }
      return made.steps->size();
    };
    for (const char* policy : {"belady", "reuse"}) {
      const auto plan = MakePlacement(policy, made.request);
      for (std::size_t i = 0; i < made.steps->size(); ++i) {
        const auto step = plan->Next();
        std::size_t soonest_out = made.steps->size();
        for (const CacheOp& op : step->ops) {
          if (op.to == kNoTier) soonest_out = std::min(soonest_out, next(i, op.block));
          if (op.from != kNoTier || op.ahead) continue;
          ASSERT_LE(next(i, op.block), soonest_out) << policy << " seed " << seed << " step " << i;
          soonest_out = made.steps->size();  // of the next insert
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace
