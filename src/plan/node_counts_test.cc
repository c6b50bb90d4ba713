// A job on any number of nodes delivers the global batches that it delivers on one, and goes on
// with them on another number of nodes, from any step.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

constexpr std::uint64_t kGlobalBatch = 48;
constexpr std::uint64_t kCountedSamples = 7 * kGlobalBatch + 19;
constexpr std::uint64_t kEpochs = 2;

using Ids = std::vector<std::uint64_t>;
// Each ascending, as order within a global batch is of no importance to training.
using GlobalBatches = std::map<std::pair<std::uint64_t, std::uint64_t>, Ids>;

// Nodes with the same number of ranks each.
struct Cluster {
  std::uint32_t nodes = 1;
  std::uint32_t ranks_per_node = 1;
};

const std::vector<Cluster> kClusters = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1},
                                        {1, 4}, {2, 2}, {3, 2}, {4, 3}, {8, 2}};

std::vector<std::uint32_t> Numbers(std::uint64_t count, std::uint64_t below, std::uint64_t seed) {
  Prng prng(seed, 1, RandomStream::kAugment);
  std::vector<std::uint32_t> numbers(count);
  for (std::uint32_t& each : numbers) each = static_cast<std::uint32_t>(prng.Below(below));
  return numbers;
}

struct JobCase {
  std::string name;
  std::string order;
  bool drop_last = false;
  bool homes = false;  // two of eight nodes for each sample
  bool pools = false;  // given; else the default of the first cluster
};

class NodeCountsTest : public testing::TestWithParam<JobCase> {
 protected:
  NodeCountsTest() {
    const std::vector<std::uint32_t> counts(71, 5);
    blocks_ = std::make_shared<OddBlocks>(counts, Numbers(kCountedSamples, 5, 1));
    std::vector<std::uint32_t> homes = Numbers(2 * kCountedSamples, 8, 2);
    homes[0] = 0;
    homes_ = std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
    costs_ = std::make_shared<const std::vector<std::uint32_t>>(Numbers(kCountedSamples, 1000, 3));
  }

  [[nodiscard]] const OrderFactory& order() const { return *Orders().Find(GetParam().order); }

  // Of the first rank of the cluster.
  [[nodiscard]] OrderRequest Request(const Cluster& on) const {
    const std::uint32_t world = on.nodes * on.ranks_per_node;
    OrderRequest request;
    request.job = {.sample_count = kCountedSamples,
                   .batch_size = kGlobalBatch / world,
                   .world_size = world,
                   .seed = 5,
                   .drop_last = GetParam().drop_last,
                   .epochs = kEpochs};
    if (order().reads_blocks()) request.blocks = blocks_;
    if (order().takes_costs()) request.costs = costs_;
    if (GetParam().homes) {
      request.homes = homes_;
      request.parameters["ranks_per_node"] = std::int64_t{on.ranks_per_node};
    }
    if (GetParam().pools) request.parameters["pools"] = std::int64_t{16};
    return request;
  }

  // What is saved of a job that began on a cluster.
  [[nodiscard]] OrderParameters State(const Cluster& on) const {
    auto resolved = order().Resolve(Request(on));
    EXPECT_TRUE(resolved.ok()) << resolved.status().ToString();
    return std::move(resolved).value();
  }

  // What the nodes of a cluster deliver together, each with one stream for its ranks.
  [[nodiscard]] GlobalBatches Deliver(const Cluster& on, OrderParameters state,
                                      Position start) const {
    GlobalBatches batches;
    OrderRequest request = Request(on);
    // The nodes of a later cluster have another number of ranks; it is no part of the sequence.
    if (state.contains("ranks_per_node")) {
      state["ranks_per_node"] = std::int64_t{on.ranks_per_node};
    }
    request.parameters = std::move(state);
    request.job.ranks = on.ranks_per_node;
    for (std::uint32_t node = 0; node < on.nodes; ++node) {
      request.job.rank = node * on.ranks_per_node;
      auto made = order().Make(request, start);
      EXPECT_TRUE(made.ok()) << made.status().ToString();
      if (!made.ok()) return {};
      std::map<std::uint32_t, std::size_t> rows;
      while (const auto step = made.value()->Next()) {
        rows.clear();
        Ids& batch = batches[{step->epoch, step->step}];
        for (const Delivery& each : step->deliveries) {
          batch.push_back(Raw(each.sample));
          ++rows[each.rank];
        }
        EXPECT_EQ(rows.size(), on.ranks_per_node);  // As many rows for every rank.
        for (const auto& [rank, count] : rows) EXPECT_EQ(count, rows.begin()->second) << rank;
      }
    }
    for (auto& [at, batch] : batches) std::ranges::sort(batch);
    return batches;
  }

  // Compares steps from `start` on. The last batch of an epoch is filled up so that all ranks have
  // equal rows: it may contain more.
  static void ExpectSame(const GlobalBatches& got, const GlobalBatches& one, Position start) {
    auto expected = one.lower_bound({start.epoch, start.step});
    for (const auto& [at, batch] : got) {
      ASSERT_NE(expected, one.end());
      ASSERT_EQ(at, expected->first);
      if (batch.size() == expected->second.size()) {
        ASSERT_EQ(batch, expected->second) << "epoch " << at.first << " step " << at.second;
      } else {
        ASSERT_EQ(at.second, kCountedSamples / kGlobalBatch);
        ASSERT_TRUE(std::ranges::includes(batch, expected->second));
      }
      ++expected;
    }
    ASSERT_EQ(expected, one.end());
  }

  // Each sample once an epoch, but for those that are dropped.
  static void ExpectConserved(const GlobalBatches& one, bool drop_last) {
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      Ids all;
      for (const auto& [at, batch] : one) {
        if (at.first == epoch) all.insert(all.end(), batch.begin(), batch.end());
      }
      std::ranges::sort(all);
      ASSERT_TRUE(std::ranges::adjacent_find(all) == all.end()) << "epoch " << epoch;
      ASSERT_EQ(all.size(),
                drop_last ? kCountedSamples / kGlobalBatch * kGlobalBatch : kCountedSamples);
    }
  }

 private:
  std::shared_ptr<const BlockMap> blocks_;
  SampleTable homes_;
  SampleTable costs_;
};

TEST_P(NodeCountsTest, DeliverTheGlobalBatchesOfOneNodeAndGoOnWithThemOnAnotherNumberFromAnyStep) {
  const GlobalBatches one = Deliver({1, 1}, State({1, 1}), {});
  ASSERT_NO_FATAL_FAILURE(ExpectConserved(one, GetParam().drop_last));
  for (const Cluster& first : kClusters) {
    // An order's defaults may depend on the world: then the job has the sequence of its first one.
    const OrderParameters state = GetParam().pools ? State(first) : State({1, 1});
    const std::string began = std::to_string(first.nodes) + " nodes of " +
                              std::to_string(first.ranks_per_node) + " ranks";
    SCOPED_TRACE("began on " + began);
    ASSERT_NO_FATAL_FAILURE(ExpectSame(Deliver(first, state, {}), one, {}));
    for (const Cluster& next : kClusters) {
      SCOPED_TRACE("goes on on " + std::to_string(next.nodes) + " nodes of " +
                   std::to_string(next.ranks_per_node) + " ranks");
      for (const auto& [at, batch] : one) {
        const Position start{.epoch = at.first, .step = at.second};
        ASSERT_NO_FATAL_FAILURE(ExpectSame(Deliver(next, state, start), one, start));
      }
    }
    // States of several clusters are equal where their parameters are: once is enough.
    if (!GetParam().pools && !GetParam().homes) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Orders, NodeCountsTest,
    testing::Values(
        JobCase{.name = "Exact", .order = "exact"},
        JobCase{.name = "ExactDropLast", .order = "exact", .drop_last = true},
        JobCase{.name = "BatchByCosts", .order = "batch"},
        JobCase{.name = "BatchByHomes", .order = "batch", .homes = true},
        JobCase{.name = "BatchByHomesDropLast", .order = "batch", .drop_last = true, .homes = true},
        JobCase{.name = "Epoch", .order = "epoch", .pools = true},
        JobCase{.name = "EpochDropLast", .order = "epoch", .drop_last = true, .pools = true},
        JobCase{.name = "EpochDefaults", .order = "epoch"}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace headrace
