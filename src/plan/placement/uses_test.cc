#include "plan/placement/uses.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plan/mixture/mixture.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

struct Job {
  std::string order;
  OrderRequest request;
  NodeSplit split;
};

// Node after node, as specified in the header, from the orders themselves. Orders that read blocks
// have one stream a node, others one a rank.
std::vector<StepUses> Slow(const Job& job, const BlockMap& blocks, Position start) {
  std::vector<StepUses> steps;
  const bool of_nodes = Orders().Find(job.order)->reads_blocks();
  const std::uint32_t at_once = of_nodes ? job.split.ranks_per_node : 1;
  for (std::uint32_t rank = 0; rank < job.split.world_size; rank += at_once) {
    OrderRequest request = job.request;
    request.job.rank = rank;
    request.job.ranks = std::min(at_once, job.split.world_size - rank);
    const auto order = Orders().Find(job.order)->Make(request, start);
    EXPECT_TRUE(order.ok()) << order.status().ToString();
    const bool last_of_node = (rank + at_once) % job.split.ranks_per_node == 0;
    std::size_t i = 0;
    while (const auto step = order.value()->Next()) {
      if (rank == 0) {
        steps.push_back(
            {.at = {.epoch = step->epoch, .step = step->step}, .ends_epoch = step->ends_epoch});
      }
      StepUses& uses = steps[i++];
      const auto add = [&](SampleId sample) {
        for (std::uint32_t b = 0; b < blocks.block_count(); ++b) {
          const BlockMap::Block block = blocks.block(b);
          if (Raw(sample) - Raw(block.first) < block.count) uses.blocks.push_back(b);
        }
      };
      for (const BlockRead& read : step->reads) add(read.first);
      for (const Delivery& delivery : step->deliveries) {
        if (delivery.block_read == kNoBlockRead) add(delivery.sample);
      }
      if (last_of_node || rank + request.job.ranks == job.split.world_size) {
        uses.node_ends.push_back(uses.blocks.size());
      }
    }
    EXPECT_EQ(i, steps.size());
  }
  return steps;
}

void ExpectSame(const Job& job, const std::shared_ptr<const BlockMap>& blocks, Position start) {
  const auto made = MakeOrderUses(*Orders().Find(job.order), job.request, blocks, job.split, start);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  StepUses uses;
  for (const StepUses& expected : Slow(job, *blocks, start)) {
    ASSERT_TRUE(made.value()->Next(uses));
    ASSERT_EQ(uses.at, expected.at);
    ASSERT_EQ(uses.ends_epoch, expected.ends_epoch);
    ASSERT_EQ(uses.blocks, expected.blocks);
    ASSERT_EQ(uses.node_ends, expected.node_ends);
  }
  ASSERT_FALSE(made.value()->Next(uses));
}

Job JobOf(std::string order, std::uint64_t samples, std::uint32_t world, std::uint32_t per_node) {
  Job job{.order = std::move(order), .split = {.world_size = world, .ranks_per_node = per_node}};
  job.request.job = {
      .sample_count = samples, .batch_size = 3, .world_size = world, .seed = 5, .epochs = 3};
  return job;
}

TEST(UsesTest, ExactUsesAreThoseOfEveryRanksOrder) {
  for (const std::uint32_t world : {1U, 2U, 5U, 8U}) {
    for (const std::uint32_t per_node : {1U, 2U, 8U}) {
      for (const std::uint64_t samples : {1U, 2U, 97U, 120U}) {
        Job job = JobOf("exact", samples, world, per_node);
        ExpectSame(job, MakeUniformBlocks(samples, 1), {});
        ExpectSame(job, MakeUniformBlocks(samples, 7), {.epoch = 2, .step = 0});
        job.request.job.shuffle = false;
        ExpectSame(job, MakeUniformBlocks(samples, 1), {});
        job.request.job.shuffle = true;
        job.request.job.drop_last = true;
        if (samples < std::uint64_t{world} * 3) continue;
        ExpectSame(job, MakeUniformBlocks(samples, 1), {.epoch = 1, .step = 0});
      }
    }
  }
  ExpectSame(JobOf("exact", 97, 2, 1), MakeUniformBlocks(97, 1), {.epoch = 1, .step = 11});
}

TEST(UsesTest, OtherOrdersAreMergedAndBlockReadsCountOnce) {
  for (const std::uint32_t per_node : {1U, 3U, 4U}) {
    ExpectSame(JobOf("batch", 97, 4, per_node), MakeUniformBlocks(97, 1), {});
    Job epoch = JobOf("epoch", 96, 4, per_node);
    epoch.request.blocks = MakeUniformBlocks(96, 4);
    epoch.request.parameters = {{"pool_bytes", std::int64_t{64}}, {"pools", std::int64_t{4}}};
    ExpectSame(epoch, epoch.request.blocks, {});
    ExpectSame(epoch, epoch.request.blocks, {.epoch = 1, .step = 3});
  }
  std::vector<std::uint32_t> units(60, 2);
  const auto odd = std::make_shared<OddBlocks>(std::vector<std::uint32_t>{5, 1, 14, 20, 8, 12},
                                               std::move(units));
  ExpectSame(JobOf("exact", 60, 3, 2), odd, {});
}

TEST(UsesTest, AMixturesUsesAreThoseOfEveryRanksOrder) {
  for (const MixtureEnd end : {MixtureEnd::kNever, MixtureEnd::kAll}) {
    for (const std::uint32_t per_node : {1U, 2U, 4U}) {
      Result<Mixture> mixture =
          Mixture::Make({.sources = {{.name = "a", .samples = 20, .passes_max = {}},
                                     {.name = "b", .samples = 5, .passes_max = {}}},
                         .stages = {{.begin = 0, .weights = {2, 1}}},
                         .end = end,
                         .epoch_samples = end == MixtureEnd::kNever ? 36U : 0U});
      ASSERT_TRUE(mixture.ok());
      Job job = JobOf("exact", mixture.value().epoch_samples(), 4, per_node);
      job.request.mixture = std::make_shared<const Mixture>(std::move(mixture).value());
      ExpectSame(job, MakeUniformBlocks(25, 1), {});
      ExpectSame(job, MakeUniformBlocks(25, 1), {.epoch = 1, .step = 1});
    }
  }
}

// Three pools of eight ranks: each rank draws from all of them.
TEST(UsesTest, ABlockCountsOnceForAllRanksOfItsNode) {
  const auto uses_an_epoch = [](std::uint32_t per_node) {
    Job job = JobOf("epoch", 96, 8, per_node);
    job.request.job.epochs = 1;
    job.request.blocks = MakeUniformBlocks(96, 4);
    job.request.parameters = {{"pools", std::int64_t{3}}};
    const auto made =
        MakeOrderUses(EpochOrderFactory(), job.request, job.request.blocks, job.split, {});
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    std::size_t uses = 0;
    StepUses step;
    while (made.ok() && made.value()->Next(step)) uses += step.blocks.size();
    return uses;
  };
  EXPECT_EQ(uses_an_epoch(1), 8 * 24);
  EXPECT_EQ(uses_an_epoch(3), 3 * 24);
  EXPECT_EQ(uses_an_epoch(4), 2 * 24);
  EXPECT_EQ(uses_an_epoch(8), 24);
}

TEST(UsesTest, AListIsOneEpochOfOneNode) {
  const auto stream = MakeListUses({.ids = {SampleId{4}, SampleId{1}, SampleId{4}},
                                    .batch_ends = {1, 2, 3},
                                    .epoch = 7,
                                    .first_step = 1});
  StepUses uses;
  ASSERT_TRUE(stream->Next(uses));
  EXPECT_EQ(uses.at, (Position{.epoch = 7, .step = 1}));
  EXPECT_EQ(uses.blocks, (std::vector<std::uint32_t>{1}));
  EXPECT_FALSE(uses.ends_epoch);
  ASSERT_TRUE(stream->Next(uses));
  EXPECT_EQ(uses.blocks, (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(uses.node_ends, (std::vector<std::uint64_t>{1}));
  EXPECT_TRUE(uses.ends_epoch);
  EXPECT_FALSE(stream->Next(uses));
}

TEST(UsesTest, WhatDoesNotFitTogetherIsRefused) {
  const auto code = [](const Job& job, const std::shared_ptr<const BlockMap>& blocks) {
    return MakeOrderUses(*Orders().Find(job.order), job.request, blocks, job.split, {})
        .status()
        .code();
  };
  Job job = JobOf("exact", 10, 2, 1);
  EXPECT_EQ(code(job, MakeUniformBlocks(10, 1)), StatusCode::kOk);
  EXPECT_EQ(code(job, MakeUniformBlocks(11, 1)), StatusCode::kInvalidArgument);
  job.split.world_size = 3;
  EXPECT_EQ(code(job, MakeUniformBlocks(10, 1)), StatusCode::kInvalidArgument);
  job = JobOf("exact", 10, 2, 0);
  EXPECT_EQ(code(job, MakeUniformBlocks(10, 1)), StatusCode::kInvalidArgument);
  job = JobOf("exact", 0xffff'ffff, 2, 1);
  EXPECT_EQ(code(job, MakeUniformBlocks(0xffff'ffff, 1)), StatusCode::kInvalidArgument);
  job = JobOf("exact", 0, 2, 1);
  EXPECT_EQ(code(job, MakeUniformBlocks(10, 1)), StatusCode::kInvalidArgument);
  job = JobOf("exact", 10, 2, 1);
  EXPECT_EQ(MakeOrderUses(*Orders().Find("exact"), job.request, MakeUniformBlocks(10, 1), job.split,
                          {.epoch = 1, .step = 9})
                .status()
                .code(),
            StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace headrace
