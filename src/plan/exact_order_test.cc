#include "plan/exact_order.h"

#include <algorithm>
#include <map>

#include "gtest/gtest.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

std::vector<Step> PullExactOrder(const OrderOptions& options, Position start = {}) {
  auto order = MakeExactOrder(options, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

// torch's algorithm on lists: DistributedSampler pads or trims the epoch's list and divides it,
// DataLoader cuts each rank's share into batches.
std::vector<std::vector<std::uint64_t>> TorchBatches(const OrderOptions& options,
                                                     std::uint64_t epoch) {
  std::vector<std::uint64_t> list(options.sample_count);
  const Permutation permutation(options.sample_count, options.seed, epoch, RandomStream::kOrder);
  for (std::uint64_t i = 0; i < list.size(); ++i) {
    list[i] = options.shuffle ? permutation.At(i) : i;
  }
  const std::uint64_t world = options.world_size;
  if (options.drop_last) {
    list.resize(list.size() / world * world);
  } else {
    for (std::uint64_t i = 0; list.size() % world != 0; ++i) list.push_back(list[i]);
  }
  std::vector<std::vector<std::uint64_t>> batches;
  for (std::uint64_t i = options.rank; i < list.size(); i += world) {
    if (batches.empty() || batches.back().size() == options.batch_size) batches.emplace_back();
    batches.back().push_back(list[i]);
  }
  if (options.drop_last && !batches.empty() && batches.back().size() < options.batch_size) {
    batches.pop_back();
  }
  return batches;
}

TEST(ExactOrderTest, EqualsTorchForEveryRankWithDropLastBothWays) {
  for (const std::uint64_t samples : {1U, 2U, 7U, 16U, 97U, 128U}) {
    for (const std::uint32_t world : {1u, 2u, 3u, 8u}) {
      for (const std::uint64_t batch : {1U, 3U, 16U}) {
        for (const bool drop_last : {false, true}) {
          if (drop_last && samples < batch * world) continue;
          std::uint64_t steps_of_rank_0 = 0;
          for (std::uint32_t rank = 0; rank < world; ++rank) {
            const OrderOptions options{.sample_count = samples,
                                       .batch_size = batch,
                                       .world_size = world,
                                       .rank = rank,
                                       .seed = 11,
                                       .shuffle = true,
                                       .drop_last = drop_last,
                                       .epochs = 2};
            const std::vector<Step> steps = PullExactOrder(options);
            if (rank == 0) steps_of_rank_0 = steps.size();
            ASSERT_EQ(steps.size(), steps_of_rank_0);
            std::size_t at = 0;
            for (const std::uint64_t epoch : {0U, 1U}) {
              const auto batches = TorchBatches(options, epoch);
              ASSERT_EQ(StepsPerEpoch(options).value(), batches.size());
              for (std::uint64_t t = 0; t < batches.size(); ++t, ++at) {
                ASSERT_EQ(steps[at].epoch, epoch);
                ASSERT_EQ(steps[at].step, t);
                ASSERT_EQ(steps[at].ends_epoch, t + 1 == batches.size());
                ASSERT_EQ(steps[at].deliveries.size(), batches[t].size());
                for (std::uint32_t slot = 0; slot < batches[t].size(); ++slot) {
                  ASSERT_EQ(steps[at].deliveries[slot],
                            (Delivery{SampleId{batches[t][slot]}, rank, slot}));
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(ExactOrderTest, GlobalBatchesDoNotDependOnTheWorldSize) {
  const auto global = [](std::uint32_t world) {
    std::map<std::uint64_t, std::vector<std::uint64_t>> batches;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      for (const Step& step : PullExactOrder({.sample_count = 960,
                              .batch_size = 96 / world,
                              .world_size = world,
                              .rank = rank,
                              .seed = 5,
                              .epochs = 1})) {
        for (const Delivery& d : step.deliveries) batches[step.step].push_back(Raw(d.sample));
      }
    }
    for (auto& [step, ids] : batches) std::sort(ids.begin(), ids.end());
    return batches;
  };
  EXPECT_EQ(global(8), global(3));
  EXPECT_EQ(global(8), global(16));
}

TEST(ExactOrderTest, EveryPositionGivesTheRemainder) {
  const OrderOptions options{.sample_count = 23, .batch_size = 4, .seed = 3, .epochs = 3};
  const std::vector<Step> whole = PullExactOrder(options);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    const std::vector<Step> rest = PullExactOrder(options, {whole[at].epoch, whole[at].step});
    ASSERT_EQ(rest.size(), whole.size() - at);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      ASSERT_EQ(rest[i].deliveries, whole[at + i].deliveries);
    }
  }
}

TEST(ExactOrderTest, WithoutShuffleEveryEpochIsInOrder) {
  const std::vector<Step> steps =
      PullExactOrder({.sample_count = 5, .batch_size = 2, .shuffle = false, .epochs = 2});
  ASSERT_EQ(steps.size(), 6);
  EXPECT_EQ(steps[5].deliveries, (std::vector<Delivery>{{SampleId{4}, 0, 0}}));
}

TEST(ExactOrderTest, BadCountsAreNamed) {
  const auto error = [](OrderOptions options) {
    return std::string(StepsPerEpoch(options).status().message());
  };
  EXPECT_EQ(error({.sample_count = 0}), "samples: got 0, must be in [1, 1099511627776]");
  EXPECT_EQ(error({.sample_count = 5, .batch_size = 0}),
            "batch_size: got 0, must be in [1, 16777216]");
  EXPECT_EQ(error({.sample_count = 5, .world_size = 2, .rank = 2}),
            "rank: got 2, must be in [0, 1]");
  EXPECT_EQ(error({.sample_count = 5, .world_size = 2, .ranks = 0}),
            "ranks: got 0, must be in [1, 2] from rank 0 on, of a world_size of 2");
  EXPECT_EQ(error({.sample_count = 5, .world_size = 8, .rank = 4, .ranks = 5}),
            "ranks: got 5, must be in [1, 4] from rank 4 on, of a world_size of 8");
  EXPECT_EQ(error({.sample_count = 5, .epochs = 0}), "epochs: got 0, must be in [1, 16777216]");
  EXPECT_EQ(error({.sample_count = 5, .batch_size = 3, .world_size = 2, .drop_last = true}),
            "batch_size 3 x world_size 2 with drop_last: dataset has 5 samples, so an epoch would "
            "have no batch; lower batch_size or use drop_last=False");
}

TEST(ExactOrderTest, AStartPastTheEndIsOutOfRange) {
  const OrderOptions options{.sample_count = 5, .batch_size = 2, .epochs = 2};
  EXPECT_EQ(MakeExactOrder(options, {0, 3}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(MakeExactOrder(options, {3, 0}).status().code(), StatusCode::kOutOfRange);
  EXPECT_FALSE(MakeExactOrder(options, {2, 0}).value()->Next().has_value());
}

TEST(ListOrderTest, GivesTheListBatchByBatchFromAnyStep) {
  const std::vector<SampleId> ids = {SampleId{4}, SampleId{4}, SampleId{1}, SampleId{0}};
  auto order = MakeListOrder({.ids = ids, .batch_ends = {2, 3, 4}, .epoch = 6, .first_step = 1});
  const auto step = order->Next();
  ASSERT_TRUE(step.has_value());
  EXPECT_EQ(step->epoch, 6);
  EXPECT_EQ(step->step, 1);
  EXPECT_FALSE(step->ends_epoch);
  EXPECT_EQ(step->deliveries, (std::vector<Delivery>{{SampleId{1}, 0, 0}}));
  EXPECT_TRUE(order->Next()->ends_epoch);
  EXPECT_FALSE(order->Next().has_value());
}

}  // namespace
}  // namespace headrace
