#include "plan/placement/placement.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/placement/testing/cases.h"

namespace headrace {
namespace {

// The guarantees of every placement, whatever it decides.
class EveryPlacementTest : public testing::TestWithParam<const PlacementFactory*> {};

// The plans of all nodes together, so that peers can be checked, too.
void RunAll(const PlacementFactory& factory, const Case& made, Replay& replay) {
  std::vector<std::unique_ptr<Placement>> plans;
  for (std::uint32_t node = 0; node < made.nodes(); ++node) {
    auto plan = factory.Make(made.Of(node));
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    plans.push_back(std::move(plan).value());
  }
  for (const StepUses& uses : *made.steps) {
    std::vector<PlacedStep> steps;
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      std::optional<PlacedStep> step = plans[node]->Next();
      ASSERT_TRUE(step.has_value());
      replay.CheckUses(uses, *step, node);
      if (testing::Test::HasFatalFailure()) return;
      steps.push_back(std::move(*step));
    }
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      replay.Apply(uses, steps[node], node);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  for (const auto& plan : plans) {
    ASSERT_FALSE(plan->Next().has_value());
    auto counters = plan->counters();
    ASSERT_EQ(counters["uses"], counters["local"] + counters["peer"] + counters["storage"]);
    ASSERT_LE(counters["reuse_units"], counters["local_units"]);
  }
}

TEST_P(EveryPlacementTest, UsesFindWhatIsThereAndNoTierIsEverTooFull) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Case made = RandomCase(seed);
    Replay replay(made);
    RunAll(*GetParam(), made, replay);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

TEST_P(EveryPlacementTest, WithoutCapacityNothingIsKept) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Case made = RandomCase(seed);
    made.request.held.clear();
    for (auto& node : made.request.capacity_units) std::ranges::fill(node, 0U);
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      const auto plan = MakePlacement(GetParam()->name(), made.Of(node));
      const auto none = MakePlacement("none", made.Of(node));
      while (const auto step = plan->Next()) {
        const auto expected = none->Next();
        ASSERT_EQ(step->uses, expected->uses);
        ASSERT_TRUE(step->ops.empty());
      }
    }
  }
}

TEST_P(EveryPlacementTest, BadRequestsAreNamed) {
  const auto error = [&](const auto& change) {
    Case made;
    made.units = {2, 3, 4};
    made.request.blocks = BlocksOf(made.units);
    made.request.capacity_units = {{5}, {9, 9}};
    SetSteps(made, {});
    change(made.request);
    const auto plan = GetParam()->Make(made.request);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    const std::string prefix = "placement " + std::string(GetParam()->name()) + ": ";
    std::string message(plan.status().message());
    EXPECT_TRUE(message.starts_with(prefix)) << message;
    return message.substr(std::min(message.size(), prefix.size()));
  };
  using Request = PlacementRequest&;
  EXPECT_EQ(error([](Request r) { r.node = 2; }),
            "got node 2, must be below 2, the number of nodes with capacities");
  EXPECT_EQ(error([](Request r) { r.horizon_epochs = 0; }),
            "horizon of 0 epochs, must be at least 1");
  EXPECT_EQ(error([](Request r) { r.blocks = MakeUniformBlocks(std::uint64_t{1} << 32, 1); }),
            "got 4294967296 blocks, must be below 2^32 - 1; use larger blocks");
  EXPECT_EQ(error([](Request r) { r.capacity_units[1].resize(9); }),
            "node 1 has 9 tiers, must be at most 8");
  EXPECT_EQ(error([](Request r) { r.held.resize(3); }),
            "got held blocks of 3 nodes, must be at most 2, those with capacities");
  EXPECT_EQ(error([](Request r) {
              r.held = {{{}, {1}}};
            }),
            "blocks are held in tier 1 of node 0, but there are 1 tiers");
  EXPECT_EQ(error([](Request r) { r.held = {{{3}}}; }),
            "tier 0 of node 0 holds block 3, the dataset has 3; it was filled from another dataset "
            "or with other blocks");
  EXPECT_EQ(error([](Request r) {
              r.held = {{}, {{1}, {1}}};
            }),
            "tier 1 of node 1 holds block 1, which the node holds already; hold it once");
  EXPECT_EQ(error([](Request r) {
              r.held = {{{0, 2}}};
            }),
            "tier 0 of node 0 holds 6 units, its capacity is 5; drop blocks before planning");
  EXPECT_EQ(GetParam()
                ->Make({.blocks = BlocksOf({1}),
                        .capacity_units = {{1}},
                        .uses = [] { return Status(StatusCode::kUnavailable, "no"); }})
                .status()
                .code(),
            StatusCode::kUnavailable);
}

INSTANTIATE_TEST_SUITE_P(, EveryPlacementTest, testing::ValuesIn(Placements().rows()),
                         [](const auto& each) { return std::string(each.param->name()); });

TEST(PlacementTest, ReuseIsOfFewerThan65536Nodes) {
  Case made = RandomCase(1);
  made.request.capacity_units.assign(65'536, made.request.capacity_units.front());
  EXPECT_EQ(Placements().Find("reuse")->Make(made.request).status().ToString(),
            "InvalidArgument: placement reuse: got 65536 nodes, must be below 65536; use "
            "'frequency'");
}

TEST(PlacementTest, FindPlacementKnowsEveryNameAndListsThem) {
  for (const PlacementFactory* each : Placements().rows()) {
    EXPECT_EQ(Placements().Get(each->name()).value(), each);
  }
  const Status status = Placements().Get("fifo").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("'fifo', must be one of 'coordinated', 'frequency'"));
}

}  // namespace
}  // namespace headrace
