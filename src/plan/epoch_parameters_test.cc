#include <limits>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/epoch_order.h"
#include "plan/order_factory.h"

namespace headrace {
namespace {

using testing::HasSubstr;

OrderRequest Request(std::uint64_t samples, std::uint64_t block_samples, std::uint64_t batch,
                     std::uint32_t world) {
  return {.job = {.sample_count = samples, .batch_size = batch, .world_size = world},
          .blocks = MakeUniformBlocks(samples, block_samples)};
}

OrderParameters Resolved(const OrderRequest& request) {
  const auto parameters = EpochOrderFactory().Resolve(request);
  EXPECT_TRUE(parameters.ok()) << parameters.status().ToString();
  return parameters.ok() ? parameters.value() : OrderParameters{};
}

OrderParameters Parameters(std::int64_t pool_bytes, std::int64_t pools) {
  return {{"pool_bytes", pool_bytes},
          {"pools", pools},
          {"join_permille", std::int64_t{250}},
          {"first_fill_permille", std::int64_t{1000}}};
}

std::string ErrorOf(const OrderRequest& request) {
  const Status status = EpochOrderFactory().Resolve(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EpochOrderFactory().Make(request, {}).status().message(), status.message());
  EXPECT_EQ(EpochOrderFactory().ResidentUnits(request).status().message(), status.message());
  return std::string(status.message());
}

TEST(EpochParametersTest, APoolIsATenthOfTheDatasetIn48OrTheNextMultipleOfTheWorldSize) {
  EXPECT_EQ(Resolved(Request(1'000'000, 64, 256, 1)), Parameters(100'000, 48));
  EXPECT_EQ(Resolved(Request(1'000'000, 64, 32, 8)), Parameters(100'000, 48));
  EXPECT_EQ(Resolved(Request(1'000'000, 64, 64, 5)), Parameters(100'000, 50));
  EXPECT_EQ(Resolved(Request(1'000'000, 64, 4, 64)), Parameters(100'000, 64));
}

TEST(EpochParametersTest, ThereAreFewerPoolsWhereOneWouldHoldFewerThan16Blocks) {
  EXPECT_EQ(Resolved(Request(100'000, 64, 256, 1)), Parameters(10'000, 9));
  EXPECT_EQ(Resolved(Request(100'000, 64, 64, 4)), Parameters(10'000, 8));
  EXPECT_EQ(Resolved(Request(100'000, 64, 32, 16)), Parameters(10'000, 9));
  EXPECT_EQ(Resolved(Request(10'000, 64, 32, 16)), Parameters(1'000, 1));
  OrderRequest roomy = Request(1'000, 100, 10, 1);  // no more pools than blocks
  roomy.parameters = {{"pool_bytes", std::int64_t{1'000'000}}};
  EXPECT_EQ(Resolved(roomy), Parameters(1'000'000, 10));
}

TEST(EpochParametersTest, TheDefaultIsLegalForTheSmallestDatasets) {
  EXPECT_EQ(Resolved(Request(1, 1, 1, 1)), Parameters(2, 1));
  EXPECT_EQ(Resolved(Request(7, 7, 3, 4)), Parameters(14, 1));     // one block
  EXPECT_EQ(Resolved(Request(97, 2, 96, 1)), Parameters(96, 3));   // a batch
  EXPECT_EQ(Resolved(Request(97, 2, 960, 1)), Parameters(97, 1));  // a batch above the dataset
  OrderRequest pools = Request(100, 4, 10, 1);
  pools.parameters = {{"pools", std::int64_t{20}}};
  EXPECT_EQ(Resolved(pools), Parameters(160, 20));
}

TEST(EpochParametersTest, WhatWasResolvedStaysOnOtherRanksAndWorldSizes) {
  OrderRequest request = Request(100'000, 64, 12, 8);
  const OrderParameters parameters = Resolved(request);
  request.parameters = parameters;
  for (const std::uint32_t world : {1U, 2U, 3U, 16U, 96U}) {
    request.job.world_size = world;
    request.job.batch_size = 96 / world;
    request.job.rank = world - 1;
    EXPECT_EQ(Resolved(request), parameters) << world;
  }
}

TEST(EpochParametersTest, AStreamHoldsThePoolsThatItsRankDrawsFrom) {
  OrderRequest request = Request(1'000, 5, 8, 6);
  request.parameters = Parameters(1'207, 12);  // 100 units a pool, 7 for none
  const auto units = [&](std::uint32_t world) {
    request.job.world_size = world;
    request.job.batch_size = 48 / world;
    return EpochOrderFactory().ResidentUnits(request).value();
  };
  EXPECT_EQ(units(1), 1'200);
  EXPECT_EQ(units(6), 200);
  EXPECT_EQ(units(12), 100);
  EXPECT_EQ(units(16), 300);  // four ranks share three pools
}

TEST(EpochParametersTest, WhatCannotBeIsNamedWithTheWayOut) {
  const OrderRequest good = Request(1'000, 64, 32, 2);
  const auto error = [&good](std::string_view name, OrderParameter value) {
    OrderRequest request = good;
    request.parameters.emplace(name, value);
    return ErrorOf(request);
  };
  EXPECT_EQ(error("pools", std::int64_t{0}),
            "pools of order epoch: got 0, must be in [1, 4294967295]");
  EXPECT_EQ(error("pools", std::int64_t{17}),
            "order epoch: pools: got 17, must be in [1, 16], the number of blocks; lower pools or "
            "make the blocks smaller");
  EXPECT_EQ(error("pools", std::int64_t{-3}),
            "pools of order epoch: got -3, must be in [1, 4294967295]");
  EXPECT_EQ(error("pool_bytes", std::int64_t{-1}),
            "pool_bytes of order epoch: got -1, must be in [1, 72057594037927936]");
  EXPECT_THAT(error("pool_bytes", std::numeric_limits<std::int64_t>::max()),
              HasSubstr("must be in [1, 72057594037927936]"));
  EXPECT_EQ(
      error("pool_bytes", std::int64_t{127}),
      "order epoch: pool_bytes 127 in 1 pool: one has 127 bytes, needs 128, two of the "
      "largest blocks (64 bytes each); raise the pool to 128 bytes, or make the blocks smaller");
  EXPECT_EQ(error("join_permille", std::int64_t{901}),
            "join_permille of order epoch: got 901, must be in [0, 900]");
  EXPECT_EQ(error("first_fill_permille", std::int64_t{1001}),
            "first_fill_permille of order epoch: got 1001, must be in [0, 1000]");
  EXPECT_EQ(error("pool", std::int64_t{1}),
            "order epoch: has no parameter 'pool'; it has first_fill_permille, join_permille, "
            "pool_bytes, pools");
  OrderRequest batch = Request(1'000, 4, 300, 2);
  batch.parameters = Parameters(500, 3);
  EXPECT_EQ(ErrorOf(batch),
            "order epoch: pool_bytes 500 in 3 pools: one has 166 bytes, needs 200, its share of a "
            "global batch of 600 samples; raise the pool to 600 bytes or lower pools");
}

TEST(EpochParametersTest, AJobThatTheOrderCannotServeIsNamedWithTheWayOut) {
  OrderRequest request = Request(1'000, 64, 32, 2);
  request.job.shuffle = false;
  EXPECT_EQ(ErrorOf(request),
            "order epoch: shuffle=False, but samples are drawn at random from pools; use order "
            "'exact' to have them in sequence, or shuffle=True");
  request = Request(1'000, 64, 32, 2);
  request.blocks = nullptr;
  EXPECT_EQ(ErrorOf(request),
            "order epoch: has no map of blocks to read; use order 'exact' or give blocks");
  request.blocks = MakeUniformBlocks(999, 64);
  EXPECT_EQ(ErrorOf(request),
            "order epoch: the map of blocks holds 999 samples, the job has 1000; both must "
            "describe one dataset");
  request = Request(1'000, 64, 32, 2);
  request.job.batch_size = 0;
  EXPECT_EQ(ErrorOf(request), "batch_size: got 0, must be in [1, 16777216]");
}

TEST(EpochParametersTest, OptionsAreCheckedWithoutTheFactory) {
  EpochOrderOptions options{.job = {.sample_count = 1'000, .batch_size = 10},
                            .blocks = MakeUniformBlocks(1'000, 10),
                            .pool_units = 100};
  EXPECT_TRUE(MakeEpochOrder(options, {}).ok());
  const auto error = [](const EpochOrderOptions& wrong) {
    const Status status = MakeEpochOrder(wrong, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EpochOrderOptions wrong = options;
  wrong.pools = 0;
  EXPECT_THAT(error(wrong), HasSubstr("pools: got 0, must be in [1, 100], the number of blocks"));
  wrong = options;
  wrong.join_permille = 901;
  EXPECT_EQ(error(wrong), "order epoch: join_permille: got 901, must be in [0, 900]");
  wrong = options;
  wrong.first_fill_permille = 1'001;
  EXPECT_EQ(error(wrong), "order epoch: first_fill_permille: got 1001, must be in [0, 1000]");
  wrong = options;
  wrong.pool_units = ~std::uint64_t{0};
  EXPECT_THAT(error(wrong), HasSubstr("must be at most 2^56 bytes"));
  EXPECT_EQ(MakeEpochOrder(options, {.epoch = 0, .step = 100}).status().code(),
            StatusCode::kOutOfRange);
}

TEST(EpochParametersTest, AfterTheLastEpochThereIsNoStep) {
  OrderRequest request = Request(1'000, 10, 10, 1);
  request.job.epochs = 2;
  EXPECT_FALSE(EpochOrderFactory().Make(request, {.epoch = 2}).value()->Next().has_value());
}

}  // namespace
}  // namespace headrace
