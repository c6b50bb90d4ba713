#include "plan/placement/all_nodes.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

constexpr std::uint64_t kRounds = kSanitized ? 30 : 150;

std::unique_ptr<AllNodes> Made(Result<std::unique_ptr<AllNodes>> made) {
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? std::move(made).value() : nullptr;
}

using Singles = std::vector<std::unique_ptr<Placement>>;

Singles MakeSingles(const PlacementFactory& factory, const Case& made) {
  Singles singles;
  for (std::uint32_t node = 0; node < made.nodes(); ++node) {
    singles.push_back(MakePlacement(factory.name(), made.Of(node)));
  }
  return singles;
}

void ExpectSameStep(const NodesStep& step, const Singles& singles) {
  ASSERT_EQ(step.use_ends.size(), singles.size());
  ASSERT_EQ(step.op_ends.size(), singles.size());
  for (std::uint32_t node = 0; node < singles.size(); ++node) {
    const std::optional<PlacedStep> one = singles[node]->Next();
    ASSERT_TRUE(one.has_value());
    ASSERT_EQ(step.at, one->at);
    const auto uses = step.UsesOf(node);
    const auto ops = step.OpsOf(node);
    ASSERT_EQ(std::vector(uses.begin(), uses.end()), one->uses) << "node " << node;
    ASSERT_EQ(std::vector(ops.begin(), ops.end()), one->ops) << "node " << node;
  }
  ASSERT_EQ(step.uses.size(), step.use_ends.back());
  ASSERT_EQ(step.ops.size(), step.op_ends.back());
}

void ExpectSameCounters(const AllNodes& all, const Singles& singles) {
  std::map<std::string, double> sums;
  for (const auto& single : singles) {
    for (const auto& [name, value] : single->counters()) {
      sums[name] = name == "coverage_units" ? value : sums[name] + value;
    }
  }
  ASSERT_EQ(all.counters(), sums);
}

// Whether `all` yields what a placement for each node does, with every step that request.uses has.
void ExpectAsSingles(const PlacementFactory& factory, const Case& made, AllNodes& all) {
  const Singles singles = MakeSingles(factory, made);
  auto stream = made.request.uses();
  ASSERT_TRUE(stream.ok()) << stream.status().ToString();
  StepUses uses;
  NodesStep step;
  while (stream.value()->Next(uses)) {
    ASSERT_TRUE(all.Next(step));
    ASSERT_EQ(step.at, uses.at);
    ASSERT_EQ(step.ends_epoch, uses.ends_epoch);
    ExpectSameStep(step, singles);
    if (testing::Test::HasFatalFailure()) return;
    ExpectSameCounters(all, singles);
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_FALSE(all.Next(step));
}

// Uses of an order, in blocks of one or of four samples.
Case CaseOfOrder(const std::string& order, std::uint64_t seed) {
  Dice dice(seed);
  Case made = RandomCase(seed, 9);
  const std::uint32_t per_node = dice.In(1, 2);
  OrderRequest request;
  request.job = {.sample_count = dice.In(40, 200),
                 .batch_size = dice.In(1, 4),
                 .world_size = made.nodes() * per_node,
                 .seed = seed,
                 .epochs = dice.In(1, 5)};
  const std::uint64_t in_block = order == "epoch" ? 4 : 1;
  made.request.blocks = MakeUniformBlocks(request.job.sample_count, in_block);
  if (order == "epoch") {
    request.blocks = made.request.blocks;
    request.parameters = {{"pool_bytes", std::int64_t{64}}, {"pools", std::int64_t{1}}};
  }
  made.request.held.clear();
  for (auto& tiers : made.request.capacity_units) {
    for (std::uint64_t& capacity : tiers) {
      capacity = dice.In(0, static_cast<std::uint32_t>(request.job.sample_count) / 2);
    }
  }
  made.request.uses = [=, blocks = made.request.blocks] {
    return MakeOrderUses(*Orders().Find(order), request, blocks,
                         {.world_size = request.job.world_size, .ranks_per_node = per_node}, {});
  };
  return made;
}

class AllNodesTest : public testing::TestWithParam<const PlacementFactory*> {};

TEST_P(AllNodesTest, EachNodeHasThePlanOfItsOwnPlacement) {
  for (std::uint64_t seed = 0; seed < kRounds; ++seed) {
    Case made = RandomCase(seed, 9);
    made.request.fastest_peer = seed % 3 == 0;
    for (const NodeTables tables : {NodeTables::kBytes, NodeTables::kLists}) {
      PlacementRequest request = made.request;
      request.tables = tables;
      const auto all = Made(GetParam()->MakeAllNodes(request));
      ExpectAsSingles(*GetParam(), made, *all);
      if (HasFatalFailure())
        FAIL() << "seed " << seed << " lists " << (tables == NodeTables::kLists);
    }
  }
}

TEST_P(AllNodesTest, PlansOfOrdersAreThoseOfTheNodes) {
  for (const std::string order : {"exact", "epoch"}) {
    for (std::uint64_t seed = 0; seed < kRounds / 6; ++seed) {
      Case made = CaseOfOrder(order, seed);
      if (seed % 2 == 0) made.request.tables = NodeTables::kLists;
      const auto all = Made(GetParam()->MakeAllNodes(made.request));
      made.request.tables = NodeTables::kBytes;
      ExpectAsSingles(*GetParam(), made, *all);
      if (HasFatalFailure()) FAIL() << order << " seed " << seed;
    }
  }
}

TEST_P(AllNodesTest, PlacementsSideBySideAreThoseOfTheNodes) {
  for (std::uint64_t seed = 0; seed < kRounds / 3; ++seed) {
    const Case made = RandomCase(seed, 9);
    const auto all = Made(MakeSideBySide(*GetParam(), made.request));
    ExpectAsSingles(*GetParam(), made, *all);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

// Tables change no plan of one node, nor what it answers about the others.
TEST_P(AllNodesTest, ListsPlanAsBytesDo) {
  for (std::uint64_t seed = 0; seed < kRounds; ++seed) {
    Case made = RandomCase(seed, 9);
    made.request.node = static_cast<std::uint32_t>(seed % made.nodes());
    made.request.numbers_inserts = true;
    made.request.tables = NodeTables::kBytes;
    const auto bytes = MakePlacement(GetParam()->name(), made.request);
    made.request.tables = NodeTables::kLists;
    const auto lists = MakePlacement(GetParam()->name(), made.request);
    while (const auto expected = bytes->Next()) {
      const auto step = lists->Next();
      ASSERT_TRUE(step.has_value());
      ASSERT_EQ(step->uses, expected->uses) << seed;
      ASSERT_EQ(step->ops, expected->ops) << seed;
      ASSERT_EQ(lists->OwnersSum(), bytes->OwnersSum()) << seed;
      for (std::uint32_t block = 0; block < made.units.size(); ++block) {
        for (std::uint32_t node = 0; node < made.nodes(); ++node) {
          const auto holder = bytes->Holder(block, node);
          ASSERT_EQ(lists->Holder(block, node), holder) << seed;
          if (!holder.has_value()) continue;
          ASSERT_EQ(lists->InsertNumber(block, holder->node),
                    bytes->InsertNumber(block, holder->node));
        }
      }
    }
    ASSERT_FALSE(lists->Next().has_value());
    ASSERT_EQ(lists->counters(), bytes->counters());
  }
}

TEST_P(AllNodesTest, BadRequestsAreThoseOfAPlacement) {
  Case made = RandomCase(3);
  made.request.node = 77;  // Not used.
  EXPECT_TRUE(GetParam()->MakeAllNodes(made.request).ok());
  made.request.node = 0;
  made.request.horizon_epochs = 0;
  EXPECT_EQ(GetParam()->MakeAllNodes(made.request).status().ToString(),
            GetParam()->Make(made.request).status().ToString());
  made.request.capacity_units.clear();
  EXPECT_EQ(GetParam()->MakeAllNodes(made.request).status().ToString(),
            GetParam()->Make(made.request).status().ToString());
}

INSTANTIATE_TEST_SUITE_P(, AllNodesTest, testing::ValuesIn(Placements().rows()),
                         [](const auto& each) { return std::string(each.param->name()); });

// More nodes than a table of bytes is taken for: the plan of a node, which the reference planners
// of policies_test check with bytes, is the same.
TEST(ManyNodesTest, TheyTakeListsAndPlanAsWithBytes) {
  for (const char* policy : {"frequency", "coordinated", "pinned", "first_touch"}) {
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      Dice dice(seed);
      Case made;
      made.units.assign(300, 1);
      made.request.blocks = BlocksOf(made.units);
      for (std::uint32_t node = 0; node < 100; ++node) {
        made.request.capacity_units.push_back({dice.In(0, 3), dice.In(0, 8)});
      }
      made.request.horizon_epochs = 2;
      made.request.seed = seed;
      SetSteps(made, RandomSteps(dice, 300, 100));
      const auto all = Made(Placements().Find(policy)->MakeAllNodes(made.request));
      made.request.tables = NodeTables::kBytes;
      ExpectAsSingles(*Placements().Find(policy), made, *all);
      if (HasFatalFailure()) FAIL() << policy << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace headrace
