#include "plan/batch_order.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "base/hash.h"
#include "gtest/gtest.h"
#include "plan/exact_order.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

using Ids = std::vector<std::uint64_t>;

SampleTable Table(std::vector<std::uint32_t> numbers) {
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(numbers));
}

std::vector<Step> Drain(Result<std::unique_ptr<Order>> order) {
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  if (!order.ok()) return steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

std::vector<Step> PullRank(BatchOrderOptions options, std::uint32_t rank, Position start = {}) {
  options.job.rank = rank;
  return Drain(MakeBatchOrder(options, start));
}

Ids IdsOf(const Step& step) {
  Ids ids;
  for (const Delivery& delivery : step.deliveries) ids.push_back(Raw(delivery.sample));
  return ids;
}

// A simple implementation of docs/orders.md on lists: one global batch, all ranks.
std::vector<Ids> ModelBatch(const BatchOrderOptions& options, const Ids& samples,
                            std::uint64_t rows) {
  const std::uint32_t world = options.job.world_size;
  const std::uint32_t each = options.homes ? options.ranks_per_node : world;
  const std::uint32_t nodes = (world + each - 1) / each;
  const auto cost = [&](auto i) { return options.costs ? (*options.costs)[samples[i]] : 1U; };
  const auto homes = [&](std::size_t i) {
    std::vector<std::uint32_t> found;
    const std::size_t k = options.homes ? options.homes->size() / options.job.sample_count : 0;
    for (std::size_t j = 0; j < k; ++j) {
      const std::uint32_t home = (*options.homes)[samples[i] * k + j];
      if (home < nodes) found.push_back(home);
    }
    return found;
  };
  std::vector<std::uint64_t> room(nodes);
  for (std::uint32_t r = 0; r < world; ++r) room[r / each] += rows;
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(homes(i).size(), -std::int64_t{cost(i)}, i);
  });
  std::map<std::size_t, std::uint32_t> node_of;
  for (const std::size_t i : order) {
    std::vector<std::tuple<std::int64_t, std::uint32_t>> open;
    for (const std::uint32_t h : homes(i)) {
      if (room[h] > 0) open.emplace_back(-static_cast<std::int64_t>(room[h]), h);
    }
    if (open.empty()) continue;
    node_of[i] = std::get<1>(*std::ranges::min_element(open));
    --room[node_of[i]];
  }
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return std::tuple(-std::int64_t{cost(i)}, i); });
  std::vector<std::uint64_t> load(world);
  std::vector<std::vector<std::size_t>> given(world);
  for (const std::size_t i : order) {
    std::vector<std::tuple<std::uint64_t, std::uint32_t>> open;
    for (std::uint32_t r = 0; r < world; ++r) {
      const bool may = node_of.contains(i) ? node_of[i] == r / each : room[r / each] > 0;
      if (may && given[r].size() < rows) open.emplace_back(load[r], r);
    }
    const std::uint32_t r = std::get<1>(*std::ranges::min_element(open));
    if (!node_of.contains(i)) --room[r / each];
    load[r] += cost(i);
    given[r].push_back(i);
  }
  std::vector<Ids> batches(world);
  for (std::uint32_t r = 0; r < world; ++r) {
    std::ranges::sort(given[r]);
    for (const std::size_t i : given[r]) batches[r].push_back(samples[i]);
  }
  return batches;
}

// By step, then rank.
std::vector<std::vector<Ids>> ModelEpoch(const BatchOrderOptions& options, std::uint64_t epoch) {
  const OrderOptions& job = options.job;
  const std::uint64_t world = job.world_size;
  const std::uint64_t global = job.batch_size * world;
  const Permutation permutation(job.sample_count, job.seed, epoch, RandomStream::kOrder);
  Ids list(job.sample_count);
  for (std::uint64_t i = 0; i < list.size(); ++i) list[i] = job.shuffle ? permutation.At(i) : i;
  if (job.drop_last) {
    list.resize(list.size() / global * global);
  } else {
    const std::uint64_t last = (list.size() + world - 1) / world * world;
    const std::uint64_t t = (last - 1) / global;
    const std::uint64_t c = job.sample_count - t * global;
    for (std::uint64_t g = job.sample_count; g < last; ++g) {
      list.push_back(list[t * global + (g - job.sample_count) % c]);
    }
  }
  std::vector<std::vector<Ids>> steps;
  for (std::uint64_t first = 0; first < list.size(); first += global) {
    const Ids batch(
        list.begin() + static_cast<std::ptrdiff_t>(first),
        list.begin() + static_cast<std::ptrdiff_t>(std::min(first + global, list.size())));
    steps.push_back(ModelBatch(options, batch, batch.size() / world));
  }
  return steps;
}

// A random job: with no, one or several homes a sample, some of them not nodes; costs that tie,
// that are 0, that fill 32 bits.
BatchOrderOptions SomeJob(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kOrder);
  constexpr std::uint64_t kSizes[] = {1, 2, 7, 16, 61, 97, 128, 211, 360, 997};
  BatchOrderOptions options;
  options.job = {.sample_count = kSizes[prng.Below(std::size(kSizes))],
                 .batch_size = 1 + prng.Below(20),
                 .world_size = 1 + static_cast<std::uint32_t>(prng.Below(16)),
                 .seed = prng.Next64(),
                 .shuffle = prng.Below(8) != 0,
                 .drop_last = prng.Below(2) == 0,
                 .epochs = 2};
  if (!StepsPerEpoch(options.job).ok()) options.job.drop_last = false;
  options.ranks_per_node = 1 + static_cast<std::uint32_t>(prng.Below(options.job.world_size));
  const std::uint32_t nodes = (options.job.world_size - 1) / options.ranks_per_node + 1;
  if (const std::uint64_t homes_each = prng.Below(4); homes_each != 0) {
    std::vector<std::uint32_t> homes(options.job.sample_count * homes_each);
    const std::uint64_t favoured = 1 + prng.Below(nodes);  // home to more than its share
    for (std::uint32_t& home : homes) {
      home = static_cast<std::uint32_t>(prng.Below(prng.Below(2) == 0 ? favoured : nodes + 1));
      if (home == nodes && prng.Below(2) == 0) home = kNoNode;
    }
    homes[0] = 0;
    options.homes = Table(std::move(homes));
  }
  if (const std::uint64_t kind = prng.Below(4); kind != 0) {
    std::vector<std::uint32_t> costs(options.job.sample_count);
    const std::uint64_t bounds[] = {3, 1000, std::uint64_t{1} << 32};
    for (std::uint32_t& cost : costs) {
      cost = static_cast<std::uint32_t>(prng.Below(bounds[kind - 1]));
    }
    options.costs = Table(std::move(costs));
  }
  return options;
}

TEST(BatchOrderTest, DealsAsThePageSaysForEveryRank) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const BatchOrderOptions options = SomeJob(seed);
    const std::uint64_t steps = StepsPerEpoch(options.job).value();
    const std::vector<std::vector<Ids>> model[] = {ModelEpoch(options, 0), ModelEpoch(options, 1)};
    ASSERT_EQ(model[0].size(), steps);
    for (std::uint32_t rank = 0; rank < options.job.world_size; ++rank) {
      const std::vector<Step> ours = PullRank(options, rank);
      ASSERT_EQ(ours.size(), 2 * steps) << "seed " << seed;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].epoch, i / steps);
        ASSERT_EQ(ours[i].step, i % steps);
        ASSERT_EQ(ours[i].ends_epoch, (i + 1) % steps == 0);
        ASSERT_EQ(IdsOf(ours[i]), model[i / steps][i % steps][rank]) << "seed " << seed;
        for (std::uint32_t slot = 0; slot < ours[i].deliveries.size(); ++slot) {
          ASSERT_EQ(ours[i].deliveries[slot].slot, slot);
          ASSERT_EQ(ours[i].deliveries[slot].rank, rank);
          ASSERT_EQ(ours[i].deliveries[slot].block_read, kNoBlockRead);
        }
      }
    }
  }
}

TEST(BatchOrderTest, HasTheGlobalBatchesOfExactAndPadsFromTheFinalOne) {
  for (std::uint64_t seed = 1000; seed < 1200; ++seed) {
    const BatchOrderOptions options = SomeJob(seed);
    const std::uint32_t world = options.job.world_size;
    const std::uint64_t steps = StepsPerEpoch(options.job).value();
    std::vector<Ids> ours(2 * steps);
    std::vector<Ids> exact(2 * steps);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      OrderOptions job = options.job;
      job.rank = rank;
      const std::vector<Step> theirs = Drain(MakeExactOrder(job, {}));
      const std::vector<Step> all = PullRank(options, rank);
      ASSERT_EQ(all.size(), theirs.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i].deliveries.size(), theirs[i].deliveries.size()) << "seed " << seed;
        std::ranges::copy(IdsOf(all[i]), std::back_inserter(ours[i]));
        std::ranges::copy(IdsOf(theirs[i]), std::back_inserter(exact[i]));
      }
    }
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::multiset<std::uint64_t> given;
      for (std::uint64_t t = 0; t < steps; ++t) {
        Ids& batch = ours[epoch * steps + t];
        std::ranges::sort(batch);
        given.insert(batch.begin(), batch.end());
        Ids& same = exact[epoch * steps + t];
        std::ranges::sort(same);
        if (t + 1 < steps || options.job.drop_last) {
          ASSERT_EQ(batch, same) << "seed " << seed;
        }
      }
      if (options.job.drop_last) {
        ASSERT_EQ(std::set(given.begin(), given.end()).size(), given.size());
        ASSERT_EQ(given.size(), steps * options.job.batch_size * world);
        continue;
      }
      // Every sample; repeated ones are of the final batch.
      ASSERT_EQ(std::set(given.begin(), given.end()).size(), options.job.sample_count);
      const Ids& last = ours[(epoch + 1) * steps - 1];
      const std::set<std::uint64_t> of_last(last.begin(), last.end());
      ASSERT_EQ(given.size() - options.job.sample_count, last.size() - of_last.size());
    }
  }
}

// The most cost that can stay at home, by trying every way to give each node its rows.
std::uint64_t MostAtHome(std::span<const std::uint32_t> homes, std::span<const std::uint32_t> costs,
                         std::vector<int> room) {
  std::uint64_t most = 0;
  const std::function<void(std::size_t, std::uint64_t)> place = [&](std::size_t i,
                                                                    std::uint64_t sum) {
    if (i == homes.size()) {
      most = std::max(most, sum);
      return;
    }
    for (std::uint32_t node = 0; node < room.size(); ++node) {
      if (room[node]-- > 0) place(i + 1, sum + (homes[i] == node ? costs[i] : 0));
      ++room[node];
    }
  };
  place(0, 0);
  return most;
}

TEST(BatchOrderTest, NoOtherWayMovesFewerBytesBetweenNodes) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed, 1, RandomStream::kOrder);
    std::vector<std::uint32_t> homes(8);
    std::vector<std::uint32_t> costs(8);
    for (std::uint32_t& home : homes) home = static_cast<std::uint32_t>(prng.Below(5));
    for (std::uint32_t& cost : costs) cost = static_cast<std::uint32_t>(prng.Below(20));
    homes[0] = 0;
    BatchOrderOptions options;
    options.job = {.sample_count = 8, .batch_size = 2, .world_size = 4, .seed = seed, .epochs = 1};
    options.homes = Table(homes);
    options.costs = Table(costs);
    std::uint64_t at_home = 0;
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      for (const std::uint64_t id : IdsOf(PullRank(options, rank)[0])) {
        if (homes[id] == rank) at_home += costs[id];
      }
    }
    ASSERT_EQ(at_home, MostAtHome(homes, costs, {2, 2, 2, 2})) << "seed " << seed;
  }
}

// Eight nodes of one rank, 32 rows a step, homes drawn as a fixed assignment of 1/8 of the samples
// to each node; with caches of 29.6 % of the data each, the rest of a cache holds samples drawn
// from all of them.
double ShareAtHome(double cache_share) {
  constexpr std::uint32_t kSamples = 32'000;
  constexpr std::uint32_t kNodes = 8;
  const Permutation dealt(kSamples, 1, 0, RandomStream::kPack);
  std::vector<std::set<std::uint32_t>> holders(kSamples);
  for (std::uint32_t i = 0; i < kSamples; ++i) {
    holders[i].insert(static_cast<std::uint32_t>(dealt.At(i) % kNodes));
  }
  const auto cache = static_cast<std::uint64_t>(cache_share * kSamples);
  for (std::uint32_t node = 0; node < kNodes; ++node) {
    const Permutation drawn(kSamples, 2 + node, 0, RandomStream::kPack);
    for (std::uint64_t i = 0; i < cache - std::min<std::uint64_t>(cache, kSamples / kNodes); ++i) {
      holders[drawn.At(i)].insert(node);
    }
  }
  std::vector<std::uint32_t> homes;
  for (const auto& nodes : holders) {
    homes.insert(homes.end(), nodes.begin(), nodes.end());
    homes.insert(homes.end(), kNodes - nodes.size(), kNoNode);
  }
  BatchOrderOptions options;
  options.job = {
      .sample_count = kSamples, .batch_size = 32, .world_size = kNodes, .seed = 3, .epochs = 3};
  options.homes = Table(homes);
  std::uint64_t local = 0;
  std::uint64_t all = 0;
  for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
    for (const Step& step : PullRank(options, rank)) {
      for (const Delivery& delivery : step.deliveries) {
        local += holders[Raw(delivery.sample)].contains(rank) ? 1 : 0;
        ++all;
      }
    }
  }
  const double share = static_cast<double>(local) / static_cast<double>(all);
  ::testing::Test::RecordProperty("share_at_home", std::to_string(share));
  return share;
}

TEST(BatchOrderTest, EightNodesWithCachesOf30PercentReadNearlyEverythingAtHome) {
  EXPECT_NEAR(ShareAtHome(0.296), 0.998, 0.001);
}

TEST(BatchOrderTest, EightNodesWhoseCachesJustHoldTheDataRead93PercentAtHome) {
  EXPECT_NEAR(ShareAtHome(0.125), 0.934, 0.003);
}

// Cost of the costliest rank over that of the mean rank: how much longer a step takes than if all
// were equal.
double Imbalance(const std::vector<std::vector<Step>>& of_ranks, const SampleTable& costs) {
  double most = 0;
  double mean = 0;
  for (std::size_t step = 0; step < of_ranks[0].size(); ++step) {
    double max = 0;
    for (const std::vector<Step>& steps : of_ranks) {
      double sum = 0;
      for (const std::uint64_t id : IdsOf(steps[step])) sum += (*costs)[id];
      max = std::max(max, sum);
      mean += sum / static_cast<double>(of_ranks.size());
    }
    most += max;
  }
  return most / mean;
}

SampleTable LogNormalCosts(std::uint64_t count) {
  Prng prng(5, 0, RandomStream::kOrder);
  std::vector<std::uint32_t> costs(count);
  for (std::uint32_t& cost : costs) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    const double normal = radius * std::cos(2 * M_PI * prng.Uniform());
    cost = static_cast<std::uint32_t>(100'000 * std::exp(0.5 * normal));
  }
  return Table(std::move(costs));
}

TEST(BatchOrderTest, RanksCostTheSameWhereExactLeavesOneWithMore) {
  BatchOrderOptions options;
  options.job = {.sample_count = 20'000, .batch_size = 32, .world_size = 8, .seed = 4, .epochs = 1};
  options.job.drop_last = true;
  options.ranks_per_node = 4;
  options.costs = LogNormalCosts(options.job.sample_count);
  std::vector<std::vector<Step>> ours;
  std::vector<std::vector<Step>> at_home;
  std::vector<std::vector<Step>> exact;
  BatchOrderOptions with_homes = options;
  std::vector<std::uint32_t> homes(options.job.sample_count);
  for (std::uint32_t i = 0; i < homes.size(); ++i) homes[i] = i % 2;
  with_homes.homes = Table(homes);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    ours.push_back(PullRank(options, rank));
    at_home.push_back(PullRank(with_homes, rank));
    options.job.rank = rank;
    exact.push_back(Drain(MakeExactOrder(options.job, {})));
  }
  RecordProperty("exact", std::to_string(Imbalance(exact, options.costs)));
  RecordProperty("batch", std::to_string(Imbalance(ours, options.costs)));
  RecordProperty("batch_with_homes", std::to_string(Imbalance(at_home, options.costs)));
  EXPECT_GT(Imbalance(exact, options.costs), 1.1);
  EXPECT_LT(Imbalance(ours, options.costs), 1.01);
  // Homes decide between the nodes, unless a node has too many.
  EXPECT_LT(Imbalance(at_home, options.costs), 1.06);
}

TEST(BatchOrderTest, CountsWhatItPlanned) {
  BatchOrderOptions options;
  options.job = {.sample_count = 8, .batch_size = 2, .world_size = 2, .shuffle = false};
  options.job.epochs = 1;
  options.homes = Table({0, 0, 0, 1, 1, 1, 1, 1});
  options.costs = Table({5, 4, 3, 2, 9, 8, 1, 6});
  auto order = MakeBatchOrder(options, {});
  ASSERT_TRUE(order.ok());
  // Of three samples at home on node 0 the cheapest moves; of four on node 1 the two cheapest.
  EXPECT_EQ(IdsOf(*order.value()->Next()), (Ids{0, 1}));
  EXPECT_EQ(IdsOf(*order.value()->Next()), (Ids{6, 7}));
  EXPECT_EQ(order.value()->counters(),
            (std::map<std::string, double>{
                {"samples", 8}, {"at_home", 5}, {"cost_max", 9 + 17}, {"cost_mean", 7 + 12}}));
}

TEST(BatchOrderTest, WithoutHomesAndCostsItIsExact) {
  for (const std::uint32_t world : {1U, 2U, 3U, 8U, 13U}) {
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      BatchOrderOptions options;
      options.job = {.sample_count = 312, .batch_size = 5, .world_size = world, .seed = 9};
      options.job.rank = rank;
      options.job.epochs = 2;
      options.job.drop_last = true;
      const std::vector<Step> ours = PullRank(options, rank);
      const std::vector<Step> exact = Drain(MakeExactOrder(options.job, {}));
      ASSERT_EQ(ours.size(), exact.size());
      for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].deliveries, exact[i].deliveries);
      }
    }
  }
}

TEST(BatchOrderTest, ASavedJobGoesOnWithTheSameBatchesOnOtherNodesWithTheSameTables) {
  const auto batches = [](std::uint32_t world) {
    BatchOrderOptions options;
    options.job = {.sample_count = 960, .batch_size = 96 / world, .world_size = world, .seed = 5};
    options.job.epochs = 1;
    options.ranks_per_node = 2;  // 4, 2 and 8 nodes; of 3 ranks one has a node of its own
    std::vector<std::uint32_t> homes(960);
    for (std::uint32_t i = 0; i < homes.size(); ++i) homes[i] = i % 4;
    options.homes = Table(homes);
    std::map<std::uint64_t, std::set<std::uint64_t>> all;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      for (const Step& step : PullRank(options, rank, {.epoch = 0, .step = 3})) {
        EXPECT_EQ(step.deliveries.size(), 96 / world);
        for (const std::uint64_t id : IdsOf(step)) all[step.step].insert(id);
      }
    }
    return all;
  };
  const auto eight = batches(8);
  EXPECT_EQ(eight.size(), 7);
  EXPECT_EQ(eight.at(3).size(), 96);
  EXPECT_EQ(eight, batches(3));
  EXPECT_EQ(eight, batches(16));
}

TEST(BatchOrderTest, EveryPositionGivesTheRemainder) {
  for (std::uint64_t seed = 2000; seed < 2020; ++seed) {
    const BatchOrderOptions options = SomeJob(seed);
    const std::uint32_t rank = options.job.world_size - 1;
    const std::vector<Step> whole = PullRank(options, rank);
    for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 50) {
      const std::vector<Step> rest =
          PullRank(options, rank, {.epoch = whole[at].epoch, .step = whole[at].step});
      ASSERT_EQ(rest.size(), whole.size() - at);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSERT_EQ(rest[i].deliveries, whole[at + i].deliveries);
      }
    }
  }
}

// The order is part of the contract between nodes and of saved states: tests/python has the same.
struct FrozenCase {
  std::uint64_t samples, batch_size;
  std::uint32_t world_size, ranks_per_node;
  std::uint64_t homes_each;
  bool costs, drop_last;
  std::string hash;
};

class FrozenBatchOrderTest : public ::testing::TestWithParam<FrozenCase> {};

TEST_P(FrozenBatchOrderTest, OrderIsFrozen) {
  const FrozenCase& frozen = GetParam();
  const auto number = [](std::uint64_t i, std::uint64_t j) {
    return static_cast<std::uint32_t>((i * 0x9E3779B1 + j * 0x85EBCA77) % 0x1'0000'0000 >> 16);
  };
  BatchOrderOptions options;
  options.job = {.sample_count = frozen.samples,
                 .batch_size = frozen.batch_size,
                 .world_size = frozen.world_size,
                 .seed = 7,
                 .drop_last = frozen.drop_last,
                 .epochs = 2};
  options.ranks_per_node = frozen.ranks_per_node;
  const std::uint32_t nodes = (frozen.world_size - 1) / frozen.ranks_per_node + 1;
  std::vector<std::uint32_t> homes;
  std::vector<std::uint32_t> costs;
  for (std::uint64_t i = 0; i < frozen.samples; ++i) {
    for (std::uint64_t j = 0; j < frozen.homes_each; ++j) {
      homes.push_back(number(i, j) % (nodes + 1));
    }
    costs.push_back(number(i, 99) % 1000);
  }
  if (frozen.homes_each != 0) options.homes = Table(homes);
  if (frozen.costs) options.costs = Table(costs);
  Ids ids;
  for (std::uint32_t rank = 0; rank < frozen.world_size; ++rank) {
    for (const Step& step : PullRank(options, rank)) {
      std::ranges::copy(IdsOf(step), std::back_inserter(ids));
    }
  }
  EXPECT_EQ(Hash64(std::as_bytes(std::span(ids))), std::stoull(frozen.hash, nullptr, 16))
      << std::hex << Hash64(std::as_bytes(std::span(ids)));
}

INSTANTIATE_TEST_SUITE_P(
    All, FrozenBatchOrderTest,
    ::testing::Values(FrozenCase{97, 5, 4, 2, 1, true, false, "63303a4c0990e0a5"},
                      FrozenCase{97, 5, 4, 2, 1, true, true, "b9aa65698a9234e2"},
                      FrozenCase{1000, 16, 7, 3, 3, true, false, "7630466a583a6cf5"},
                      FrozenCase{1000, 16, 6, 1, 2, false, false, "8370acfa35386be4"},
                      FrozenCase{251, 8, 16, 4, 0, true, false, "befd8d92cbac71c6"},
                      FrozenCase{13, 4, 5, 5, 1, false, false, "717bbd6fb439ca1c"}));

class BatchFactoryTest : public ::testing::Test {
 protected:
  BatchFactoryTest() {
    request_.job = {.sample_count = 4, .batch_size = 1, .world_size = 2, .epochs = 1};
    request_.homes = Table({0, 1, 0, 1});
  }

  Status Resolved() const { return BatchOrderFactory().Resolve(request_).status(); }

  OrderRequest request_;
};

TEST_F(BatchFactoryTest, TablesBelongToTheParametersByTheirHash) {
  const auto resolved = BatchOrderFactory().Resolve(request_);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved.value().at("homes"), OrderParameter("21a7800506d4ef9f"));
  EXPECT_EQ(resolved.value().at("costs"), OrderParameter("none"));
  request_.parameters = resolved.value();
  EXPECT_EQ(BatchOrderFactory().Resolve(request_).value(), resolved.value());
  EXPECT_EQ(BatchOrderFactory().ResidentUnits(request_).value(), 0);
  ASSERT_TRUE(BatchOrderFactory().Make(request_, {}).ok());
  EXPECT_FALSE(BatchOrderFactory().reads_blocks());
}

TEST_F(BatchFactoryTest, AStateOfAnotherTableIsRefused) {
  request_.parameters = BatchOrderFactory().Resolve(request_).value();
  request_.homes = Table({1, 0, 0, 1});
  EXPECT_EQ(Resolved().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(BatchOrderFactory().Make(request_, {}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(BatchOrderFactory().ResidentUnits(request_).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(BatchFactoryTest, WhatCannotBeIsNamed) {
  const auto error = [&](auto change) {
    OrderRequest request = request_;
    change(request);
    const Status status = BatchOrderFactory().Resolve(request).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(BatchOrderFactory().Make(request, {}).status().message(), status.message());
    return std::string(status.message());
  };
  const auto three = Table({1, 2, 3});
  EXPECT_EQ(error([&](OrderRequest& r) { r.costs = three; }),
            "costs of order batch: got 3 numbers, must be one for each of 4 samples");
  EXPECT_EQ(error([](OrderRequest& r) {
              r.homes = Table({1, 0, 0, 0, 0});
            }),
            "homes of order batch: got 5 numbers, must be the same number, 1 to 16, for each of 4 "
            "samples");
  EXPECT_EQ(error([](OrderRequest& r) { r.homes = Table({}); }),
            "homes of order batch: got 0 numbers, must be the same number, 1 to 16, for each of 4 "
            "samples");
  EXPECT_EQ(error([](OrderRequest& r) {
              r.homes = Table(std::vector<std::uint32_t>(4 * (kHomesMax + 1)));
            }),
            "homes of order batch: got 68 numbers, must be the same number, 1 to 16, for each of 4 "
            "samples");
  EXPECT_EQ(error([](OrderRequest& r) {
              r.homes = Table({2, 2, kNoNode, 3});
            }),
            "homes of order batch: no home is a node; 2 ranks, 1 a node, must have one below 2");
  EXPECT_EQ(error([](OrderRequest& r) { r.parameters["ranks_per_node"] = std::int64_t{0}; }),
            "ranks_per_node of order batch: got 0, must be in [1, 1048576]");
  EXPECT_EQ(error([](OrderRequest& r) { r.parameters["pools"] = std::int64_t{3}; }),
            "order batch: has no parameter 'pools'; it has bijection_from, costs, homes, "
            "ranks_per_node");
  EXPECT_EQ(error([](OrderRequest& r) {
              r.homes = nullptr;
              r.job.sample_count = std::uint64_t{1} << 30;
              r.job.batch_size = std::uint64_t{1} << 20;
              r.job.world_size = 512;
            }),
            "batch_size 1048576 x world_size 512 with order batch: every rank plans the whole "
            "global batch, which may have 268435456 samples at most; use order 'exact'");
  EXPECT_EQ(error([](OrderRequest& r) { r.job.batch_size = 0; }),
            "batch_size: got 0, must be in [1, 16777216]");
}

TEST_F(BatchFactoryTest, AStartPastTheEndIsOutOfRange) {
  EXPECT_EQ(BatchOrderFactory().Make(request_, {0, 2}).status().code(), StatusCode::kOutOfRange);
  EXPECT_FALSE(BatchOrderFactory().Make(request_, {1, 0}).value()->Next().has_value());
}

}  // namespace
}  // namespace headrace
