#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/epoch/epoch_order.h"
#include "plan/epoch/epoch_parameters.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"
#include "plan/testing/odd_blocks.h"

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
          {"first_fill_permille", std::int64_t{1000}},
          {"first_join_permille", std::int64_t{0}},
          {"homes", std::int64_t{1}},
          {"home_table", "none"},
          {"bijection_from", std::int64_t{1} << 24}};
}

std::string ErrorOf(const OrderRequest& request) {
  const Status status = EpochOrderFactory().Resolve(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EpochOrderFactory().Make(request, {}).status().message(), status.message());
  EXPECT_EQ(EpochOrderFactory().ResidentUnits(request).status().message(), status.message());
  return std::string(status.message());
}

// Blocks of realistic sizes: a small dataset may have a larger share in memory.
std::shared_ptr<const BlockMap> LargeBlocks(std::uint64_t blocks, std::uint32_t block_samples,
                                            std::uint32_t sample_units) {
  return std::make_shared<OddBlocks>(
      std::vector<std::uint32_t>(blocks, block_samples),
      std::vector<std::uint32_t>(blocks * block_samples, sample_units));
}

OrderRequest LargeRequest(std::uint64_t blocks, std::uint64_t batch, std::uint32_t world) {
  // 64 KiB a sample.
  return {.job = {.sample_count = blocks * 16, .batch_size = batch, .world_size = world},
          .blocks = LargeBlocks(blocks, 16, 1024)};
}

double Share(const OrderRequest& request) {
  const OrderParameters parameters = Resolved(request);
  return static_cast<double>(std::get<std::int64_t>(parameters.at("pool_bytes"))) /
         static_cast<double>(request.blocks->total_units() * request.blocks->unit_bytes());
}

double InflationOfBlocks(OrderRequest request) {
  request.parameters = Resolved(request);
  return ExpectedLabelInflation(EpochOrderFactory(), request, nullptr).value().of_blocks;
}

TEST(EpochParametersTest, APoolHoldsWhatABatchMixesWellWithATenthToAQuarterOfTheDataset) {
  EXPECT_DOUBLE_EQ(Share(LargeRequest(20'000, 64, 1)), 0.1);  // More than such a batch needs.
  EXPECT_LT(InflationOfBlocks(LargeRequest(20'000, 64, 1)), 1.1);
  const OrderRequest between = LargeRequest(10'000, 256, 1);
  EXPECT_NEAR(Share(between), 0.147, 0.001);
  // Positions of different pools are never mates: with 48 pools the inflation is slightly lower.
  EXPECT_NEAR(InflationOfBlocks(between), 1.071, 0.001);
  OrderRequest in_one_pool = between;
  in_one_pool.parameters = {{"pools", std::int64_t{1}}};
  EXPECT_NEAR(InflationOfBlocks(in_one_pool), 1.090, 0.001);
  EXPECT_DOUBLE_EQ(Share(LargeRequest(2'000, 512, 1)), 0.25);  // A quarter of 2 GB, and no more.
  // Small data, 0.2 GB: most of it.
  EXPECT_NEAR(Share(LargeRequest(200, 64, 1)), 0.82, 0.01);
  EXPECT_LT(InflationOfBlocks(LargeRequest(200, 64, 1)), 1.1);
  // At least the order's minimum: here a batch of a third of the dataset.
  EXPECT_NEAR(Share(LargeRequest(3'000, 16'000, 1)), 1.0 / 3, 0.001);
  // Ranks and their memory have no effect.
  OrderRequest ranks = LargeRequest(10'000, 16, 16);
  EXPECT_EQ(Resolved(ranks), Resolved(between));
  ranks.rank_units = ranks.blocks->total_units();
  EXPECT_EQ(Resolved(ranks), Resolved(between));
}

TEST(EpochParametersTest, ThereAre48PoolsOrADivisorWith16BlocksEachWhateverWorldSizeDivides48) {
  const auto pools = [](std::uint64_t samples, std::uint32_t world) {
    return std::get<std::int64_t>(
        Resolved(Request(samples, 64, 48 / std::gcd(48U, world), world)).at("pools"));
  };
  for (const std::uint32_t world : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 24U, 48U}) {
    EXPECT_EQ(pools(1'000'000, world), 48) << world;
    EXPECT_EQ(pools(100'000, world), 16) << world;
    EXPECT_EQ(pools(10'000, world), 8) << world;
  }
  EXPECT_EQ(pools(1'000'000, 5), 50);
  EXPECT_EQ(pools(1'000'000, 32), 64);
  EXPECT_EQ(pools(1'000'000, 64), 64);
  EXPECT_EQ(pools(100'000, 5), 50);
  OrderRequest roomy = Request(1'000, 100, 10, 1);  // no more pools than blocks
  roomy.parameters = {{"pool_bytes", std::int64_t{1'000'000}}};
  EXPECT_EQ(Resolved(roomy), Parameters(1'000'000, 8));
}

TEST(EpochParametersTest, TheFirstFillIsPartialWhereAllOfItIsLong) {
  const OrderRequest request = LargeRequest(10'000, 256, 1);
  const auto permille = std::get<std::int64_t>(Resolved(request).at("first_fill_permille"));
  const auto pool = std::get<std::int64_t>(Resolved(request).at("pool_bytes"));
  EXPECT_EQ(Resolved(request).at("first_join_permille"), OrderParameter(std::int64_t{250}));
  // Of three quarters of the pool: 64 MiB.
  EXPECT_NEAR(0.75 * static_cast<double>(pool * permille) / 1000, 64.0 * kMiB, 2.0 * kMiB);
  OrderRequest given = request;
  given.parameters = {{"first_fill_permille", std::int64_t{1000}}};
  EXPECT_EQ(Resolved(given).at("first_join_permille"), OrderParameter(std::int64_t{0}));
  const ExpectedInflation whole =
      ExpectedLabelInflation(
          EpochOrderFactory(),
          {.job = given.job, .parameters = Resolved(given), .blocks = given.blocks}, nullptr)
          .value();
  EXPECT_EQ(whole.of_blocks_first, whole.of_blocks);
  given.parameters = Resolved(request);
  const ExpectedInflation part =
      ExpectedLabelInflation(EpochOrderFactory(), given, nullptr).value();
  EXPECT_EQ(part.of_blocks, whole.of_blocks);
  EXPECT_GT(part.of_blocks_first, 2);
  // A batch, and a block a pool, at least.
  EXPECT_EQ(Resolved(LargeRequest(3'000, 16'000, 1)).at("first_fill_permille"),
            OrderParameter(std::int64_t{1000}));
  OrderRequest tall{.job = {.sample_count = 1 << 16, .batch_size = 64},
                    .blocks = LargeBlocks(1 << 10, 64, 2048)};  // 8 MiB a block
  tall.parameters = Resolved(tall);
  const auto of_a_pool = std::get<std::int64_t>(tall.parameters.at("pool_bytes")) /
                         std::get<std::int64_t>(tall.parameters.at("pools"));
  EXPECT_GE(of_a_pool * 3 / 4 * std::get<std::int64_t>(tall.parameters.at("first_fill_permille")),
            std::int64_t{1000} * 8 * static_cast<std::int64_t>(kMiB));
}

// A random dataset, job and memory.
OrderRequest RandomRequest(Prng& prng) {
  std::vector<std::uint32_t> counts(1 + prng.Below(prng.Below(4) == 0 ? 3000 : 60));
  std::uint64_t samples = 0;
  for (std::uint32_t& count : counts) {
    count = 1 + static_cast<std::uint32_t>(prng.Below(1 + prng.Below(40)));
    samples += count;
  }
  std::vector<std::uint32_t> units(samples);
  const std::uint64_t most = 1 + prng.Below(5000);
  for (std::uint32_t& each : units) each = 1 + static_cast<std::uint32_t>(prng.Below(most));
  OrderRequest request{.blocks = std::make_shared<OddBlocks>(counts, std::move(units))};
  request.job = {.sample_count = samples,
                 .batch_size = 1 + prng.Below(64),
                 .world_size = static_cast<std::uint32_t>(1 + prng.Below(64))};
  if (prng.Below(3) == 0) {
    request.parameters["join_permille"] = static_cast<std::int64_t>(prng.Below(901));
  }
  if (prng.Below(3) == 0) {
    request.parameters["pools"] =
        static_cast<std::int64_t>(1 + prng.Below(std::min<std::uint64_t>(counts.size(), 60)));
  }
  return request;
}

TEST(EpochParametersTest, DefaultsAreLegalKeepToTheMemoryAndStay) {
  Prng prng(21, 0, RandomStream::kOrder);
  int reduced = 0;
  for (int job = 0; job < 3000; ++job) {
    OrderRequest request = RandomRequest(prng);
    SCOPED_TRACE("job " + std::to_string(job));
    const OrderParameters useful = Resolved(request);  // Legal, otherwise there would be an error.
    request.rank_units = prng.Below(2 * request.blocks->total_units());
    const OrderParameters parameters = Resolved(request);
    if (parameters != useful) ++reduced;
    // However ranks share processes, each stream fits into the room of its ranks, unless the
    // order's minimum is more.
    const auto pools = static_cast<std::uint64_t>(std::get<std::int64_t>(parameters.at("pools")));
    const std::uint64_t least = LeastEpochPool(request.job, *request.blocks, pools) * pools /
                                std::gcd(pools, std::uint64_t{request.job.world_size});
    for (std::uint32_t ranks = 1; ranks <= request.job.world_size; ranks += 5) {
      request.job.ranks = ranks;
      request.job.rank = static_cast<std::uint32_t>(prng.Below(request.job.world_size - ranks + 1));
      ASSERT_EQ(Resolved(request), parameters);
      ASSERT_LE(EpochOrderFactory().ResidentUnits(request).value(),
                ranks * std::max(*request.rank_units, least));
    }
    // Resolved parameters do not change with more or less memory.
    request.parameters = parameters;
    request.rank_units = prng.Below(2 * request.blocks->total_units());
    ASSERT_EQ(Resolved(request), parameters);
  }
  EXPECT_GT(reduced, 500);
  EXPECT_LT(reduced, 2500);
}

TEST(EpochParametersTest, WithMemoryEnoughWorldSizesThatDivide48HaveOneOrder) {
  Prng prng(22, 0, RandomStream::kOrder);
  for (int job = 0; job < 1000; ++job) {
    OrderRequest request = RandomRequest(prng);
    request.job.batch_size = 48 * (1 + prng.Below(8));
    request.job.world_size = 1;
    const OrderParameters alone = Resolved(request);
    const auto global = request.job.batch_size;
    for (const std::uint32_t world : {2U, 3U, 4U, 6U, 8U, 12U, 16U, 24U, 48U}) {
      request.job.world_size = world;
      request.job.batch_size = global / world;
      request.rank_units.reset();
      ASSERT_EQ(Resolved(request), alone) << "job " << job << ", world size " << world;
      request.rank_units = request.blocks->total_units() * 4;
      if (!request.parameters.contains("pools")) {
        ASSERT_EQ(Resolved(request), alone) << "job " << job << ", world size " << world;
      }
    }
  }
}

TEST(EpochParametersTest, TheDefaultIsLegalForTheSmallestDatasets) {
  EXPECT_EQ(Resolved(Request(1, 1, 1, 1)), Parameters(2, 1));
  EXPECT_EQ(Resolved(Request(7, 7, 3, 4)), Parameters(14, 1));      // one block
  EXPECT_EQ(Resolved(Request(97, 2, 96, 1)), Parameters(112, 3));   // all of it joins
  EXPECT_EQ(Resolved(Request(97, 2, 960, 1)), Parameters(112, 3));  // a batch above the dataset
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
  EXPECT_EQ(error("pool_bytes", std::int64_t{127}),
            "order epoch: pool_bytes: 127 bytes is too little for 1 pool: a pool needs at least "
            "128 bytes, "
            "two of the largest blocks (64 bytes each); give pool= at least 128 bytes, or make the "
            "blocks smaller");
  EXPECT_EQ(error("join_permille", std::int64_t{901}),
            "join_permille of order epoch: got 901, must be in [0, 900]");
  EXPECT_EQ(error("first_fill_permille", std::int64_t{1001}),
            "first_fill_permille of order epoch: got 1001, must be in [0, 1000]");
  EXPECT_EQ(error("pool", std::int64_t{1}),
            "order epoch: has no parameter 'pool'; it has bijection_from, first_fill_permille, "
            "first_join_permille, home_table, homes, join_permille, pool_bytes, pools");
  OrderRequest batch = Request(1'000, 4, 300, 2);
  batch.parameters = Parameters(500, 3);
  EXPECT_EQ(
      ErrorOf(batch),
      "order epoch: pool_bytes: 500 bytes is too little for 3 pools: a pool needs at least 200 "
      "bytes, its share of a global batch of 600 samples; give pool= at least 600 bytes, or "
      "lower pools=");
  batch.parameters = Parameters(3, 3);  // Also less than two blocks, but these are not the least.
  EXPECT_THAT(ErrorOf(batch), HasSubstr("a pool needs at least 200 bytes, its share of a global"));
  EXPECT_EQ(error("pool_bytes", std::int64_t{1}),
            "order epoch: pool_bytes: 1 byte is too little for 1 pool: a pool needs at least 128 "
            "bytes, two of the largest blocks (64 bytes each); give pool= at least 128 bytes, or "
            "make the blocks smaller");
  OrderRequest large = Request(10'000, 2'000, 4, 1);
  large.parameters = Parameters(3'999, 1);
  EXPECT_THAT(ErrorOf(large),
              HasSubstr("pool_bytes: 3.9 KiB (3999 bytes) is too little for 1 pool: "
                        "a pool needs at least 3.9 KiB (4000 bytes), two of"));
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
            "order epoch: needs a map of blocks; use order 'exact' or give blocks");
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
