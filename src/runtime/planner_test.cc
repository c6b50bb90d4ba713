#include "runtime/planner.h"

#include <memory>
#include <string>
#include <vector>

#include "base/cell_pool.h"
#include "engine/testing/table_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/node_tiers.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamples = 960;
constexpr std::uint64_t kSampleBytes = 1000;

std::shared_ptr<const Index> MakeIndex() {
  auto index = std::make_shared<TableIndex>();
  index->samples = kSamples;
  index->objects.emplace_back(kSamples * kSampleBytes, '\0');
  TableIndex::Column& bytes = index->columns.emplace_back();
  bytes.info = {.name = "bytes", .kind = FieldKind::kBytes};
  for (std::uint64_t id = 0; id < kSamples; ++id) {
    bytes.extents.push_back({ObjectId{0}, {id * kSampleBytes, kSampleBytes}});
  }
  index->infos = {bytes.info};
  return index;
}

std::shared_ptr<Planner> Plan(const OrderOptions& job, const OrderParameters& parameters) {
  auto made = Planner::Make(MakeIndex(), job, {.name = "epoch", .parameters = parameters});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::make_shared<Planner>(std::move(made).value());
}

OrderOptions JobOf(std::uint32_t world_size, std::uint32_t rank, std::uint32_t ranks) {
  return {.sample_count = kSamples,
          .batch_size = 4,
          .world_size = world_size,
          .rank = rank,
          .ranks = ranks,
          .epochs = 1};
}

const TiersSpec kTiers{.tiers = {{.path = "", .capacity_bytes = 100'000}}};

// Three pools feed all ranks: a node reads each block, and has a use of it, once.
TEST(PlannerTest, TheJobsRanksHereAreOneNodeOfItsTiers) {
  const auto planner =
      Plan(JobOf(8, 4, 4), {{"pools", std::int64_t{3}}, {"block_samples", std::int64_t{10}}});
  ASSERT_TRUE(planner->Settle({.resident_bytes = 10'000'000}).ok());
  const auto room = MakeTierRoom(MakeIndex(), kTiers, *planner);
  ASSERT_TRUE(room.ok()) << room.status().ToString();
  const PlacementRequest request =
      MakePlacementRequest(planner, room.value(), /*horizon_epochs=*/1, Position());
  EXPECT_EQ(request.node, 1U);
  EXPECT_EQ(request.capacity_units,
            std::vector<std::vector<std::uint64_t>>(2, room.value().capacity_units));
  const auto uses = request.uses();
  ASSERT_TRUE(uses.ok()) << uses.status().ToString();
  std::vector<std::size_t> count(2);
  StepUses step;
  while (uses.value()->Next(step)) {
    ASSERT_EQ(step.node_ends.size(), 2U);
    for (std::uint32_t node = 0; node < 2; ++node) count[node] += step.OfNode(node).size();
  }
  EXPECT_EQ(count, std::vector<std::size_t>(2, kSamples / 10));
}

TEST(PlannerTest, RanksThatAreNoNodeHaveNoTiers) {
  const auto status = [](std::uint32_t world_size, std::uint32_t rank, std::uint32_t ranks) {
    const auto planner = Plan(JobOf(world_size, rank, ranks), {});
    return MakeTierRoom(MakeIndex(), kTiers, *planner).status();
  };
  EXPECT_TRUE(status(4, 2, 2).ok());
  EXPECT_EQ(status(4, 1, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(7, 0, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status(7, 4, 3).message()),
              ::testing::HasSubstr("3 ranks from rank 4 on, of 7"));
}

// As each of its ranks alone would have a share of its memory.
TEST(PlannerTest, ANodesMemoryIsThatOfItsRanks) {
  constexpr std::uint64_t kEach = 1000;  // units
  const auto settled = [](std::uint32_t rank, std::uint32_t ranks, std::int64_t pools) {
    const auto planner =
        Plan(JobOf(8, rank, ranks), {{"pools", pools}, {"block_samples", std::int64_t{1}}});
    const std::uint64_t unit = planner->unit_bytes();
    const std::uint64_t here = ranks * kEach * CellPool::ChargedBytes(1, unit);
    EXPECT_TRUE(planner->Settle({.resident_bytes = here}).ok());
    EXPECT_LE(planner->resident_units(), ranks * kEach);
    return std::get<std::int64_t>(planner->parameters().at("pool_bytes")) /
           static_cast<std::int64_t>(unit);
  };
  EXPECT_EQ(settled(0, 1, 8), 8000);
  EXPECT_EQ(settled(4, 2, 8), 8000);
  EXPECT_EQ(settled(0, 8, 8), 8000);
  // Pools of all ranks are kept once a node, whatever its ranks.
  EXPECT_EQ(settled(0, 1, 1), 1000);
  EXPECT_EQ(settled(4, 2, 1), 2000);
  EXPECT_EQ(settled(0, 8, 1), 8000);

  const auto needed = [](std::uint32_t ranks) {
    BudgetNeeds needs;
    const auto planner = Plan(JobOf(8, 0, ranks), {{"block_samples", std::int64_t{1}}});
    EXPECT_TRUE(planner->AddNeeds(needs).ok());
    return needs.resident_bytes;
  };
  EXPECT_EQ(needed(2), 2 * needed(1));
}

}  // namespace
}  // namespace headrace
