#include "loader/config/resolved_order.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "index/test_contents.h"
#include "index/testing/table_index.h"
#include "loader/planning/tier_room.h"

namespace headrace {
namespace {

constexpr std::uint64_t kSamples = 960;
constexpr std::uint64_t kSampleBytes = 1000;

std::shared_ptr<const TableIndex> MakeIndexToOrder() {
  RegisterPapers();
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

std::shared_ptr<ResolvedOrder> Plan(const OrderOptions& job, const OrderParameters& parameters) {
  static const std::shared_ptr<const Index> index = MakeIndexToOrder();
  auto made = ResolvedOrder::Make(index, job, {.name = "epoch", .parameters = parameters});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::make_shared<ResolvedOrder>(std::move(made).value());
}

OrderOptions JobOf(std::uint32_t world_size, std::uint32_t rank, std::uint32_t ranks) {
  return {.sample_count = kSamples,
          .batch_size = 4,
          .world_size = world_size,
          .rank = rank,
          .ranks = ranks,
          .epochs = 1};
}

const OrderParameter kLimited(std::string("default, limited by memory"));

const TiersSpec kTiers{.tiers = {{.path = "", .capacity_bytes = 100'000}}};

// Three pools feed all ranks: a node reads each block, and has a use of it, once.
TEST(ResolvedOrderTest, TheJobsRanksHereAreOneNodeOfItsTiers) {
  const auto order =
      Plan(JobOf(8, 4, 4), {{"pools", std::int64_t{3}}, {"block_samples", std::int64_t{10}}});
  ASSERT_TRUE(order->Settle(/*rank_bytes=*/10'000'000).ok());
  const auto room = MakeTierRoom(MakeIndexToOrder(), kTiers, *order);
  ASSERT_TRUE(room.ok()) << room.status().ToString();
  const PlacementRequest request =
      MakePlacementRequest(order, room.value(), /*horizon_epochs=*/1, Position());
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

TEST(ResolvedOrderTest, RanksThatAreNoNodeHaveNoTiers) {
  const auto status = [](std::uint32_t world_size, std::uint32_t rank, std::uint32_t ranks) {
    const auto order = Plan(JobOf(world_size, rank, ranks), {});
    return MakeTierRoom(MakeIndexToOrder(), kTiers, *order).status();
  };
  EXPECT_TRUE(status(4, 2, 2).ok());
  EXPECT_EQ(status(4, 1, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(7, 0, 3).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status(7, 4, 3).message()),
              ::testing::HasSubstr("3 ranks from rank 4 on, of a world_size of 7"));
}

// How the ranks of a job share processes.
TEST(ResolvedOrderTest, DefaultsAreTheSameHoweverRanksShareProcesses) {
  Prng random(11, 0, RandomStream::kOrder);
  int limited = 0;
  for (int job = 0; job < 600; ++job) {
    const std::uint32_t world = 1 + static_cast<std::uint32_t>(random.Below(16));
    const std::int64_t block_samples = 1 + static_cast<std::int64_t>(random.Below(12));
    OrderParameters given = {{"block_samples", block_samples}};
    if (random.Below(4) == 0) {
      const std::uint64_t blocks = kSamples / static_cast<std::uint64_t>(block_samples);
      given["pools"] =
          1 + static_cast<std::int64_t>(random.Below(std::min<std::uint64_t>(blocks, 60)));
    }
    if (random.Below(4) == 0) given["join_permille"] = static_cast<std::int64_t>(random.Below(901));
    const std::uint64_t rank_bytes = random.Below(600) * kSampleBytes;
    const auto alone = Plan(JobOf(world, 0, 1), given);
    ASSERT_TRUE(alone->Settle(rank_bytes).ok());
    BudgetNeeds needs_alone;
    alone->AddNeeds(needs_alone);
    limited += alone->origins().at("pool_bytes") == kLimited ? 1 : 0;
    for (std::uint32_t ranks = 1; ranks <= world; ++ranks) {
      const auto rank = static_cast<std::uint32_t>(random.Below(world - ranks + 1));
      const auto order = Plan(JobOf(world, rank, ranks), given);
      ASSERT_TRUE(order->Settle(rank_bytes).ok());
      ASSERT_EQ(order->parameters(), alone->parameters())
          << "job " << job << ": " << ranks << " of " << world;
      // Ranks in one process have the sum of the room that they have alone.
      BudgetNeeds needs;
      order->AddNeeds(needs);
      ASSERT_LE(needs.resident_bytes, ranks * needs_alone.resident_bytes);
    }
  }
  EXPECT_GT(limited, 100);
  EXPECT_LT(limited, 500);
}

TEST(ResolvedOrderTest, TheOriginOfEachParameterIsTold) {
  const auto origins = [](std::uint64_t rank_bytes) {
    const auto order =
        Plan(JobOf(4, 0, 1), {{"block_samples", std::int64_t{4}}, {"pools", std::int64_t{4}}});
    EXPECT_TRUE(order->Settle(rank_bytes).ok());
    return order->origins();
  };
  const OrderParameter given(std::string("given"));
  const OrderParameter by_default(std::string("default"));
  EXPECT_EQ(origins(kSamples * 2 * kSampleBytes),
            (OrderParameters{{"bijection_from", by_default},
                             {"block_samples", given},
                             {"first_fill_permille", by_default},
                             {"first_join_permille", by_default},
                             {"home_table", by_default},
                             {"homes", by_default},
                             {"join_permille", by_default},
                             {"pool_bytes", by_default},
                             {"pools", given}}));
  EXPECT_EQ(origins(10 * kSampleBytes).at("pool_bytes"), kLimited);
}

// Storage whose reads of 20,000 bytes are nearly as fast as its largest.
MachineModel Machine() {
  const auto curve = [](double rate) { return Curve::Make({{.users = 1, .rate = rate}}).value(); };
  MachineModel model;
  model.storage.rate = SizedRates::Make({{.bytes = 1'000, .rate = curve(1e6)},
                                         {.bytes = 20'000, .rate = curve(1e7)},
                                         {.bytes = 1'000'000, .rate = curve(1.1e7)}})
                           .value();
  return model;
}

// The order `redox` on a machine that was measured: samples a chunk, and where that is from.
std::pair<OrderParameter, OrderParameter> Chunk(const OrderOptions& job,
                                                const std::shared_ptr<const Index>& index,
                                                OrderParameters given = {}, bool has_peers = false,
                                                const MachineModel& model = Machine(),
                                                const char* name = "redox") {
  auto order = ResolvedOrder::Make(index, job, {.name = name, .parameters = std::move(given)},
                                   has_peers, &model);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  EXPECT_TRUE(order.value().Settle(/*rank_bytes=*/100'000'000).ok());
  return {order.value().parameters().at("block_samples"),
          order.value().origins().at("block_samples")};
}

TEST(ResolvedOrderTest, AMeasuredMachineDecidesTheChunksOfRedox) {
  const auto index = MakeIndexToOrder();
  const OrderParameter from_profile(std::string("default, from the profile"));
  const OrderParameter by_default(std::string("default"));
  const OrderParameter given(std::string("given"));
  const auto chosen = Chunk(JobOf(1, 0, 1), index);
  EXPECT_EQ(chosen, std::pair(OrderParameter(16), from_profile));
  // What is given stays, as what a state has: 0 too.
  EXPECT_EQ(Chunk(JobOf(1, 0, 1), index, {{"block_samples", 7}}),
            std::pair(OrderParameter(7), given));
  EXPECT_EQ(Chunk(JobOf(1, 0, 1), index, {{"block_samples", 0}}),
            std::pair(OrderParameter(0), by_default));
  // A profile of one size says nothing of others, and the order epoch does not look at any.
  MachineModel one_size;
  one_size.storage.rate = SizedRates::OfAnySize(Curve::Make({{.users = 1, .rate = 1e6}}).value());
  EXPECT_EQ(Chunk(JobOf(1, 0, 1), index, {}, false, one_size),
            std::pair(OrderParameter(0), by_default));
  EXPECT_EQ(Chunk(JobOf(1, 0, 1), index, {}, false, Machine(), "epoch"),
            std::pair(OrderParameter(0), by_default));
}

TEST(ResolvedOrderTest, TheSizesOfSamplesAreReadAsOftenWithAProfileAsWithout) {
  const auto sizes_read = [](const MachineModel* model) {
    const auto index = MakeIndexToOrder();
    EXPECT_TRUE(ResolvedOrder::Make(index, JobOf(1, 0, 1), {.name = "redox"}, false, model).ok());
    return index->sizes_read;
  };
  const MachineModel machine = Machine();
  EXPECT_EQ(sizes_read(&machine), sizes_read(nullptr));
}

// Others would plan otherwise, and nobody would notice.
TEST(ResolvedOrderTest, OnlyPlansThatAreComparedFollowAMachine) {
  const auto index = MakeIndexToOrder();
  const OrderParameter chosen(16);
  const OrderParameter by_default(0);
  const OrderParameters nodes = {{"nodes", 2}};
  EXPECT_EQ(Chunk(JobOf(4, 0, 4), index).first, chosen);             // all ranks are here
  EXPECT_EQ(Chunk(JobOf(4, 0, 1), index).first, by_default);         // each plans alone
  EXPECT_EQ(Chunk(JobOf(4, 2, 2), index, nodes).first, by_default);  // nodes that do not meet
  EXPECT_EQ(Chunk(JobOf(4, 2, 2), index, nodes, true).first, chosen);
  EXPECT_EQ(Chunk(JobOf(4, 2, 2), index, {}, true).first, by_default);  // they exchange nothing
}

// Nodes that send each other samples must be equally large.
TEST(ResolvedOrderTest, AnExchangeOfOtherNodesThanThereAreIsRefused) {
  const Status refused =
      ResolvedOrder::Make(MakeIndexToOrder(), JobOf(6, 0, 2),
                          {.name = "redox", .parameters = {{"nodes", std::int64_t{2}}}},
                          /*has_peers=*/true)
          .status();
  EXPECT_EQ(refused.message(),
            "order 'redox' on 2 nodes: rank 0 of 6 is the first of 2 on its node; each node must "
            "have as many ranks, and the job as many nodes");
}

TEST(ResolvedOrderTest, AnExchangeOfOtherNodesThanHomesIsRefused) {
  RegisterPapers();
  const internal::TestFolder folder;
  IndexContents contents;
  contents.sample_count = 3;
  contents.root = folder.path();
  contents.fields.push_back({.info = {.name = "data"}});
  for (std::uint64_t home = 0; home < 3; ++home) {
    contents.objects.push_back({.name = "home-" + std::to_string(home) + "/a", .size = 4});
    contents.fields.back().extents.push_back(internal::MakeExtent(home, 0, 4));
  }
  ASSERT_TRUE(WriteIndex(contents, folder / "index").ok());
  OrderOptions job = JobOf(2, 0, 1);
  job.sample_count = 3;
  job.batch_size = 1;
  const Status refused =
      ResolvedOrder::Make(Index::Open(folder / "index").value(), job,
                          {.name = "redox", .parameters = {{"nodes", std::int64_t{2}}}},
                          /*has_peers=*/true)
          .status();
  EXPECT_EQ(refused.message(),
            "order 'redox' with 2 nodes: the dataset has 3 homes (folders home-0, home-1, ...), "
            "which must be as many; pack it with --shards-over 2, or run on 3 nodes and give the "
            "order 3");
}

TEST(ResolvedOrderTest, NoTiersOrTooManyAreRefused) {
  const auto status = [](std::size_t count) {
    return MakeTierRoom(MakeIndexToOrder(), {.tiers = std::vector<TierSpec>(count)},
                        *Plan(JobOf(1, 0, 1), {}))
        .status()
        .ToString();
  };
  const std::string most = std::to_string(kTiersMax);
  EXPECT_EQ(status(0), "InvalidArgument: tiers: got 0 of them, must be 1 to " + most);
  EXPECT_EQ(status(kTiersMax + 1), "InvalidArgument: tiers: got " + std::to_string(kTiersMax + 1) +
                                       " of them, must be 1 to " + most);
}

}  // namespace
}  // namespace headrace
