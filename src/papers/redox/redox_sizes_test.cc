#include "papers/redox/redox_sizes.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

RedoxRoom Room(std::optional<std::uint64_t> units) {
  RedoxRoom room;
  room.total_units = 100'000;
  room.block_count = 1'000;
  room.room_units = units;
  return room;
}

TEST(RedoxSizesTest, TenChunksFormAVirtualOneUnlessMemoryIsLess) {
  EXPECT_EQ(ChooseRedoxSizes(Room({})), (RedoxSizes{10, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(1'000'000)), (RedoxSizes{10, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(10'000)), (RedoxSizes{10, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(9'000)), (RedoxSizes{12, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(5'000)), (RedoxSizes{20, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(1)), (RedoxSizes{1'000, 0}));
  EXPECT_EQ(ChooseRedoxSizes(Room(0)), (RedoxSizes{1'000, 0}));
}

TEST(RedoxSizesTest, NodesShareTheSlotsAndATenthIsForWhatIsSentAlong) {
  RedoxRoom room = Room(5'000);
  room.nodes = 4;
  EXPECT_EQ(ChooseRedoxSizes(room), (RedoxSizes{10, 0}));
  room.sends_along = true;
  EXPECT_EQ(ChooseRedoxSizes(room), (RedoxSizes{10, 500}));
  room.room_units = 1'000;
  EXPECT_EQ(ChooseRedoxSizes(room), (RedoxSizes{28, 100}));  // 25'000 units in 900
  room.room_units = 3;
  EXPECT_EQ(ChooseRedoxSizes(room), (RedoxSizes{1'000, 1}));
}

// Of reads that take as long as `latency_bytes` more at the best rate.
std::uint64_t ChunkWithLatency(double latency_bytes, std::uint64_t samples = 1'280'640,
                               std::uint32_t nodes = 1) {
  BlockFacts facts{.samples = samples, .sample_bytes = 105'414, .nodes = nodes};
  facts.read_rate = [&](double bytes) { return bytes / (latency_bytes + bytes); };
  return ChooseRedoxChunk(facts);
}

TEST(RedoxSizesTest, AChunkHasTheLeastLoadsOverTheRateOfItsReads) {
  EXPECT_EQ(ChunkWithLatency(6.7e6), 64U);   // the papers' choice
  EXPECT_EQ(ChunkWithLatency(5.6e6), 32U);   // 6.11 x (1 + 1.66) < 8.91 x (1 + 0.83)
  EXPECT_EQ(ChunkWithLatency(1e9), 64U);     // and no more
  EXPECT_EQ(ChunkWithLatency(200'000), 2U);  // 1.36 x (1 + 0.95) < 1 + 1.9 and 1.99 x (1 + 0.47)
  EXPECT_EQ(ChunkWithLatency(100'000), 1U);  // Redirection loses: 1.36 x (1 + 0.47) > 1 + 0.95.
  EXPECT_EQ(ChunkWithLatency(0), 1U);
  // Each node has ten chunks, which is a virtual one.
  EXPECT_EQ(ChunkWithLatency(1e9, 400), 32U);
  EXPECT_EQ(ChunkWithLatency(1e9, 400, 4), 8U);
  EXPECT_EQ(ChunkWithLatency(1e9, 5), 1U);
}

TEST(RedoxSizesTest, TheOrderTakesThemWhereNothingIsGivenAndTheyFit) {
  OrderRequest request;
  request.blocks = MakeUniformBlocks(6'400, 64);
  request.job = {.sample_count = 6'400, .world_size = 2, .exchange = true};
  request.parameters = {{"prefetch", 50}};
  request.rank_units = 200;
  const OrderParameters resolved = RedoxOrderFactory().Resolve(request).value();
  EXPECT_EQ(resolved.at("chunks_per_virtual"), OrderParameter(18));  // 3'200 units in 180
  EXPECT_EQ(resolved.at("remote_bytes"), OrderParameter(20));
  request.parameters = {{"prefetch", 50}, {"chunks_per_virtual", 7}, {"remote_bytes", 0}};
  const OrderParameters given = RedoxOrderFactory().Resolve(request).value();
  EXPECT_EQ(given.at("chunks_per_virtual"), OrderParameter(7));
  EXPECT_EQ(given.at("remote_bytes"), OrderParameter(0));
  // What is resolved stays, with more memory too.
  request.parameters = resolved;
  request.rank_units.reset();
  EXPECT_EQ(RedoxOrderFactory().Resolve(request).value(), resolved);
}

}  // namespace
}  // namespace headrace
