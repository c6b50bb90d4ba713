// What tiers of several nodes must reach together, in the plan: how much storage gives after the
// first epoch, and how much each node finds in its own tiers.

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/permutation.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

using Counters = std::map<std::string, double>;

struct Cluster {
  std::uint32_t nodes = 8;
  std::uint32_t batch = 16;          // of a node, which has one rank
  std::uint64_t capacity = 0;        // units of each node
  std::uint64_t epochs = 20;         // the first is not counted
  std::uint64_t horizon = 20;        // epochs
  std::vector<std::uint32_t> units;  // of each sample
};

// Two homes a sample, drawn: every node is home to as many.
SampleTable TwoHomes(std::uint64_t samples, std::uint32_t nodes) {
  const Permutation drawn(samples, 17, 0, RandomStream::kPack);
  std::vector<std::uint32_t> homes(2 * samples);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const std::uint64_t turn = drawn.At(i);
    homes[2 * i] = static_cast<std::uint32_t>(turn % nodes);
    const std::uint64_t step = 1 + turn / nodes % (nodes - 1);
    homes[2 * i + 1] = static_cast<std::uint32_t>((turn + step) % nodes);
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
}

// What the nodes use, step for step: the same for all placements, so it is kept.
std::shared_ptr<const Steps> UsesOf(const std::string& order, const Cluster& on) {
  OrderRequest request;
  request.job = {.sample_count = on.units.size(),
                 .batch_size = on.batch,
                 .world_size = on.nodes,
                 .seed = 11,
                 .epochs = on.epochs};
  if (order == "batch") request.homes = TwoHomes(on.units.size(), on.nodes);
  auto stream = MakeOrderUses(*Orders().Find(order), request, BlocksOf(on.units),
                              {.world_size = on.nodes, .ranks_per_node = 1}, {});
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  Steps steps;
  StepUses uses;
  while (stream.value()->Next(uses)) steps.push_back(uses);
  return std::make_shared<const Steps>(std::move(steps));
}

// The counters of all nodes together, without the first epoch.
Counters Later(std::string_view policy, const Cluster& on,
               const std::shared_ptr<const Steps>& steps) {
  Counters later;
  for (std::uint32_t node = 0; node < on.nodes; ++node) {
    PlacementRequest request{
        .blocks = BlocksOf(on.units), .node = node, .horizon_epochs = on.horizon};
    request.capacity_units.assign(on.nodes, std::vector<std::uint64_t>(1, on.capacity));
    request.uses = [steps]() -> Result<std::unique_ptr<UseStream>> {
      return std::unique_ptr<UseStream>(std::make_unique<FixedUses>(steps));
    };
    const auto plan = MakePlacement(policy, request);
    Counters first;
    while (const auto step = plan->Next()) {
      if (step->at.epoch == 0) first = plan->counters();
    }
    for (const auto& [name, value] : plan->counters()) later[name] += value - first[name];
  }
  return later;
}

// Samples of 1 to 40 units.
std::vector<std::uint32_t> UnevenUnits(std::uint64_t samples) {
  std::vector<std::uint32_t> units(samples);
  Dice dice(1);
  for (std::uint32_t& each : units) each = dice.In(1, 40);
  return units;
}

double Sum(const std::vector<std::uint32_t>& units) {
  double sum = 0;
  for (const std::uint32_t each : units) sum += each;
  return sum;
}

class NodeFiguresTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(NodeFiguresTest, TiersThatHoldTheDataTogetherReadStorageInTheFirstEpochOnly) {
  Cluster on{.nodes = GetParam(), .epochs = 6, .units = UnevenUnits(2400)};
  on.capacity = static_cast<std::uint64_t>(1.05 * Sum(on.units) / on.nodes);
  for (const char* order : {"exact", "batch"}) {
    Counters later = Later("coordinated", on, UsesOf(order, on));
    EXPECT_GT(later["uses_units"], 4 * Sum(on.units)) << order;
    EXPECT_EQ(later["storage_units"], 0) << order;
    EXPECT_EQ(later["inserted_units"], 0) << order;
  }
}

// Owners stay where they are when a new period is planned, however often others use their blocks.
TEST_P(NodeFiguresTest, NorDoTheyReadItWhenANewPeriodIsPlanned) {
  Cluster on{.nodes = GetParam(), .epochs = 6, .horizon = 2, .units = UnevenUnits(2400)};
  on.capacity = static_cast<std::uint64_t>(1.05 * Sum(on.units) / on.nodes);
  Counters later = Later("coordinated", on, UsesOf("exact", on));
  EXPECT_GT(later["uses_units"], 4 * Sum(on.units));
  EXPECT_EQ(later["storage_units"], 0);
  EXPECT_EQ(later["inserted_units"], 0);
}

TEST_P(NodeFiguresTest, SmallerTiersLeaveToStorageWhatDoesNotFit) {
  Cluster on{.nodes = GetParam(), .epochs = 6, .units = UnevenUnits(2400)};
  const double total = Sum(on.units);
  for (const double share : {0.25, 0.5, 0.9}) {
    on.capacity = static_cast<std::uint64_t>(share * total / on.nodes);
    Counters later = Later("coordinated", on, UsesOf("exact", on));
    const double epochs = later["uses_units"] / total;
    EXPECT_NEAR((later["storage_units"] + later["inserted_units"]) / epochs / total, 1 - share,
                0.02)
        << share;
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, NodeFiguresTest, testing::Values(2, 3, 4, 8),
                         [](const auto& each) { return std::to_string(each.param); });

// Eight nodes whose tiers hold 30 % of the data each.
TEST(NodeShareTest, EightNodesFindMostOfABatchByHomesAndHalfOfAnExactOneInTheirOwnTiers) {
  Cluster on;
  on.units.assign(4000, 1);
  on.capacity = 1200;
  const auto local = [&](const char* order, std::string_view policy) {
    Counters later = Later(policy, on, UsesOf(order, on));
    const double share = later["local"] / later["uses"];
    std::printf("%s %s: local %.3f, other nodes %.3f, storage %.3f\n", order,
                std::string(policy).c_str(), share, later["peer"] / later["uses"],
                later["storage"] / later["uses"]);
    return share;
  };
  EXPECT_GE(local("batch", "coordinated"), 0.98);
  EXPECT_GE(local("batch", "frequency"), 0.98);
  EXPECT_GE(local("batch", "belady"), 0.92);  // It has nothing of other nodes.
  EXPECT_GE(local("exact", "frequency"), 0.49);
  EXPECT_GE(local("exact", "belady"), 0.54);
}

}  // namespace
}  // namespace headrace
