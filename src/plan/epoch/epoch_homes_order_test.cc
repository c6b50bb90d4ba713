#include "plan/epoch/epoch_homes_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/epoch/epoch_parameters.h"
#include "plan/epoch/testing/epoch_model.h"
#include "plan/epoch/testing/epoch_streams.h"
#include "plan/order_factory.h"
#include "plan/testing/exchange_ledger.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kJobs = 300;

SampleTable Table(std::vector<std::uint32_t> homes) {
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
}

std::shared_ptr<const EpochHomes> Homes(const BlockMap& blocks, std::uint32_t count,
                                        const SampleTable& table = nullptr) {
  auto homes = EpochHomes::Make(blocks, count, table);
  EXPECT_TRUE(homes.ok()) << homes.status().ToString();
  return std::move(homes).value();
}

// A job of several nodes whose sizes a seed decides: homes of equal and of very different sizes,
// blocks larger and smaller than the batch, pools from the least legal size on.
struct Job {
  EpochOrderOptions options;
  std::uint32_t ranks_per_node = 1;
  SampleTable table;

  [[nodiscard]] std::uint32_t nodes() const { return options.home_count(); }
  // The options of a node's stream.
  [[nodiscard]] EpochOrderOptions Node(std::uint32_t node) const {
    EpochOrderOptions of_node = options;
    of_node.job.exchange = true;
    of_node.job.ranks = ranks_per_node;
    of_node.job.rank = node * ranks_per_node;
    return of_node;
  }
};

Job RandomJob(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kAugment);
  Job job;
  const auto homes = static_cast<std::uint32_t>(2 + prng.Below(3));
  job.ranks_per_node = static_cast<std::uint32_t>(1 + prng.Below(3));
  std::vector<std::uint32_t> counts(homes + prng.Below(40));
  std::uint64_t samples = 0;
  const std::uint64_t largest = 1 + prng.Below(8);
  for (std::uint32_t& count : counts) {
    count = static_cast<std::uint32_t>(1 + prng.Below(largest));
    samples += count;
  }
  const std::uint64_t wheel = 1 + prng.Below(11);
  std::vector<std::uint32_t> units(samples);
  for (std::uint32_t& each : units) each = static_cast<std::uint32_t>(1 + prng.Below(wheel));
  auto blocks = std::make_shared<OddBlocks>(counts, std::move(units));
  if (prng.Below(2) == 0) {
    // Node 0 may be the home of most.
    const bool uneven = prng.Below(2) == 0;
    std::vector<std::uint32_t> table;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      auto home = static_cast<std::uint32_t>(uneven && prng.Below(4) != 0 ? 0 : prng.Below(homes));
      if (i < homes) home = static_cast<std::uint32_t>(i);
      table.insert(table.end(), counts[i], home);
    }
    job.table = Table(std::move(table));
  }
  EpochOrderOptions& options = job.options;
  options.blocks = blocks;
  options.homes = Homes(*blocks, homes, job.table);
  options.job = {.sample_count = samples,
                 .batch_size = 1 + prng.Below(7),
                 .world_size = homes * job.ranks_per_node,
                 .seed = prng.Next64(),
                 .drop_last = prng.Below(2) == 0,
                 .epochs = 3};
  if (GlobalBatch(job.options) > samples) options.job.drop_last = false;
  const std::uint64_t most = options.homes->blocks(options.homes->least_home()).size();
  options.pools =
      static_cast<std::uint32_t>(homes * (1 + prng.Below(std::min(most, std::uint64_t{4}))));
  const std::uint64_t least =
      LeastEpochPool(options.job, *blocks, options.pools, options.homes.get());
  options.pool_units = options.pools * (least + prng.Below(2) * prng.Below(1 + 2 * least));
  options.join_permille = static_cast<std::uint32_t>(prng.Below(901));
  if (prng.Below(3) == 0)
    options.first_fill_permille = static_cast<std::uint32_t>(prng.Below(1001));
  if (prng.Below(3) == 0)
    options.first_join_permille = static_cast<std::uint32_t>(prng.Below(1001));
  return job;
}

std::string Describe(std::uint64_t seed, const Job& job) {
  const EpochOrderOptions& options = job.options;
  return "job " + std::to_string(seed) + ": " + std::to_string(options.job.sample_count) +
         " samples, " + std::to_string(options.blocks->block_count()) + " blocks, batch " +
         std::to_string(options.job.batch_size) + ", nodes " + std::to_string(job.nodes()) + " x " +
         std::to_string(job.ranks_per_node) + ", pools " + std::to_string(options.pools) + " of " +
         std::to_string(options.pool_units / options.pools) + " units" +
         (job.table == nullptr ? "" : ", table") + (options.job.drop_last ? ", drop_last" : "");
}

// The streams of all nodes, by node.
std::vector<std::vector<Step>> PullNodes(const Job& job, Position start = {}) {
  std::vector<std::vector<Step>> nodes;
  for (std::uint32_t node = 0; node < job.nodes(); ++node) {
    nodes.push_back(Pull(job.Node(node), start));
  }
  return nodes;
}

ExchangeLedger Ledger(const Job& job, Position start = {}) {
  std::vector<std::uint64_t> limits;
  for (std::uint32_t node = 0; node < job.nodes(); ++node) {
    limits.push_back(ResidentUnits(job.Node(node), job.table));
  }
  std::vector<std::uint32_t> home_of(job.options.job.sample_count);
  const BlockMap& blocks = *job.options.blocks;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const BlockMap::Block block = blocks.block(i);
    const std::uint64_t first = Raw(block.first);
    for (std::uint64_t sample = first; sample < first + block.count; ++sample) {
      home_of[sample] =
          job.table == nullptr ? static_cast<std::uint32_t>(i % job.nodes()) : (*job.table)[sample];
    }
  }
  return {blocks, job.Node(0).job, limits,
          [home_of](std::uint64_t sample) { return home_of[sample]; }, start};
}

std::vector<Step> AtStep(const std::vector<std::vector<Step>>& nodes, std::size_t step) {
  std::vector<Step> steps;
  for (const std::vector<Step>& node : nodes) steps.push_back(node[step]);
  return steps;
}

TEST(EpochHomesOrderTest, EveryRankIsGivenWhatThePageSays) {
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    const Job job = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, job));
    std::vector<Ids> epochs;
    for (std::uint64_t epoch = 0; epoch < job.options.job.epochs; ++epoch) {
      epochs.push_back(EpochModel(job.options, epoch).Places());
    }
    const std::uint64_t per_epoch = StepsPerEpoch(job.options.job).value();
    const std::uint64_t world = job.options.job.world_size;
    // Nodes that exchange samples, and one stream of all ranks that reads everything.
    std::vector<std::vector<Step>> streams = PullNodes(job);
    EpochOrderOptions all = job.options;
    all.job.ranks = all.job.world_size;
    streams.push_back(Pull(all));
    for (const std::vector<Step>& steps : streams) {
      ASSERT_EQ(steps.size(), per_epoch * job.options.job.epochs);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Ids& places = epochs[i / per_epoch];
        const std::uint64_t begin = i % per_epoch * GlobalBatch(job.options);
        const std::uint64_t dealt = std::min(GlobalBatch(job.options), places.size() - begin);
        ASSERT_EQ(steps[i].epoch, i / per_epoch);
        ASSERT_EQ(steps[i].step, i % per_epoch);
        ASSERT_EQ(steps[i].ends_epoch, (i + 1) % per_epoch == 0);
        for (const Delivery& delivery : steps[i].deliveries) {
          const std::uint64_t place = delivery.slot * world + delivery.rank;
          ASSERT_EQ(Raw(delivery.sample), places[begin + place % dealt]);
        }
      }
    }
  }
}

TEST(EpochHomesOrderTest, WhatANodeSendsIsWhatTheOtherExpectsWithinThePromisedMemory) {
  std::uint64_t padded = 0;
  std::uint64_t cut = 0;  // steps in which a node sent another one several parcels
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    const Job job = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, job));
    const std::vector<std::vector<Step>> nodes = PullNodes(job);
    ExchangeLedger ledger = Ledger(job);
    for (std::size_t step = 0; step < nodes[0].size(); ++step) {
      ASSERT_NO_FATAL_FAILURE(ledger.Run(AtStep(nodes, step)));
      for (const std::vector<Step>& node : nodes) {
        ASSERT_TRUE(node[step].releases.empty());
        for (const Delivery& each : node[step].deliveries) {
          if (each.block_read == kNoBlockRead) ++padded;
        }
        for (std::size_t i = 1; i < node[step].parcels.size(); ++i) {
          if (node[step].parcels[i].node == node[step].parcels[i - 1].node) ++cut;
        }
      }
    }
    ASSERT_NO_FATAL_FAILURE(ledger.Finish());
  }
  EXPECT_GT(padded, 50U);
  EXPECT_GT(cut, 50U);
}

// A node whose memory is taken in the order of its reads, that sends parcels only as a whole, and
// whose parcels arrive as soon as it has memory for them.
class WholeParcels {
 public:
  WholeParcels(const BlockMap& blocks, std::uint64_t limit) : blocks_(blocks), limit_(limit) {}

  void Run(const Step& step) {
    std::size_t sent = 0;
    std::set<Key> to_deliver;
    for (const Delivery& each : step.deliveries) {
      if (each.block_read != kNoBlockRead) to_deliver.emplace(each.block_read, Raw(each.sample));
    }
    const auto is_here = [this](const Release& each) {
      return here_.contains({each.block_read, Raw(each.sample)});
    };
    const auto release = [&] {
      std::erase_if(to_deliver,
                    [this](const Key& key) { return here_.contains(key) && (Remove(key), true); });
      for (const Parcel& parcel : step.parcels) {
        if (!std::ranges::all_of(parcel.samples, is_here)) continue;
        for (const Release& each : parcel.samples) Remove({each.block_read, Raw(each.sample)});
        ++sent;
      }
    };
    for (const BlockRead& read : step.reads) {
      const Ids kept = StreamLedger::Kept(read);
      std::uint64_t units = 0;
      for (const std::uint64_t sample : kept) units += Units(sample);
      if (units_ + units > limit_) release();
      ASSERT_LE(units_ + units, limit_) << "read " << read.number << " waits for itself";
      units_ += units;
      for (const std::uint64_t sample : kept) here_.emplace(read.number, sample);
    }
    release();
    ASSERT_EQ(sent, step.parcels.size());
    ASSERT_TRUE(to_deliver.empty());
  }

 private:
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // read, sample

  [[nodiscard]] std::uint64_t Units(std::uint64_t sample) const {
    std::uint32_t units = 0;
    blocks_.Charges(SampleId{sample}, {&units, 1});
    return units;
  }
  void Remove(const Key& key) {
    ASSERT_EQ(here_.erase(key), 1U);
    units_ -= Units(key.second);
  }

  const BlockMap& blocks_;
  const std::uint64_t limit_;
  std::uint64_t units_ = 0;
  std::set<Key> here_;
};

// A parcel may be large, and has to be whole before it can leave.
TEST(EpochHomesOrderTest, NoReadWaitsForAParcelThatItBelongsTo) {
  for (std::uint64_t seed = 0; seed < kJobs; ++seed) {
    const Job job = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, job));
    for (std::uint32_t node = 0; node < job.nodes(); ++node) {
      const EpochOrderOptions stream = job.Node(node);
      WholeParcels memory(*stream.blocks, ResidentUnits(stream, job.table));
      std::map<std::string, double> counters;
      for (const Step& step : Pull(stream, {}, &counters)) {
        ASSERT_NO_FATAL_FAILURE(memory.Run(step));
      }
      ASSERT_LE(counters.at("resident_units_peak"),
                static_cast<double>(ResidentUnits(stream, job.table)));
    }
  }
}

// Also on other ranks, as long as the homes are the same.
TEST(EpochHomesOrderTest, EveryPositionGivesTheRemainderOnOtherRanksToo) {
  for (std::uint64_t seed = 0; seed < kJobs / 4; ++seed) {
    const Job job = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, job));
    Job other = job;
    other.ranks_per_node = static_cast<std::uint32_t>(job.options.job.batch_size);
    other.options.job.batch_size = job.ranks_per_node;
    other.options.job.world_size = other.ranks_per_node * job.nodes();
    const std::vector<std::vector<Step>> whole = PullNodes(job);
    for (std::size_t at = 0; at < whole[0].size(); ++at) {
      const Position start{whole[0][at].epoch, whole[0][at].step};
      SCOPED_TRACE(StepText(start));
      const std::vector<std::vector<Step>> rest = PullNodes(job, start);
      ExchangeLedger ledger = Ledger(job, start);
      for (std::size_t step = at; step < whole[0].size(); ++step) {
        ASSERT_NO_FATAL_FAILURE(ledger.Run(AtStep(rest, step - at)));
        for (std::uint32_t node = 0; node < job.nodes(); ++node) {
          const std::vector<Delivery>& straight = whole[node][step].deliveries;
          const std::vector<Delivery>& entered = rest[node][step - at].deliveries;
          ASSERT_TRUE(
              std::ranges::equal(straight, entered, {}, &Delivery::sample, &Delivery::sample));
        }
      }
      ASSERT_NO_FATAL_FAILURE(ledger.Finish());
      if (!job.options.job.drop_last) continue;  // The pad set depends on the ranks.
      const std::vector<std::vector<Step>> moved = PullNodes(other, start);
      for (std::size_t step = at; step < whole[0].size(); ++step) {
        std::map<std::uint64_t, std::uint64_t> places;
        for (std::uint32_t node = 0; node < job.nodes(); ++node) {
          for (const Delivery& each : whole[node][step].deliveries) {
            places[each.slot * job.options.job.world_size + each.rank] = Raw(each.sample);
          }
        }
        for (std::uint32_t node = 0; node < job.nodes(); ++node) {
          for (const Delivery& each : moved[node][step - at].deliveries) {
            ASSERT_EQ(places.at(each.slot * other.options.job.world_size + each.rank),
                      Raw(each.sample));
          }
        }
      }
    }
  }
}

TEST(EpochHomesOrderTest, StreamsWithoutAnExchangeReadAllAndReleaseWhatOthersGet) {
  for (std::uint64_t seed = 0; seed < kJobs / 4; ++seed) {
    const Job job = RandomJob(seed);
    SCOPED_TRACE(Describe(seed, job));
    EpochOrderOptions stream = job.options;
    stream.job.rank = static_cast<std::uint32_t>(seed % stream.job.world_size);
    const std::uint64_t limit = ResidentUnits(stream, job.table);
    ASSERT_EQ(limit, std::min(stream.pools * (stream.pool_units / stream.pools),
                              2 * stream.blocks->total_units()));
    StreamLedger ledger(*stream.blocks, limit);
    std::map<std::string, double> counters;
    for (const Step& step : Pull(stream, {}, &counters)) {
      ASSERT_NO_FATAL_FAILURE(ledger.Run(step));
      ASSERT_TRUE(step.parcels.empty());
    }
    ASSERT_EQ(ledger.resident_units(), 0U);
    ASSERT_LE(counters.at("resident_units_peak"), static_cast<double>(limit));
    ASSERT_FALSE(counters.contains("units_sent"));
  }
}

// What users pay: a node reads its share, and of N nodes each sends (N - 1) / N of it.
TEST(EpochHomesOrderTest, EachNodeReadsItsShareAndAllButOneOfNPartsGoOverTheNetwork) {
  for (const std::uint32_t nodes : {2U, 3U, 4U}) {
    const auto samples = std::uint64_t{240} * 100;
    Job job;
    job.ranks_per_node = 2;
    job.options = {.blocks = MakeUniformBlocks(samples, 20), .pool_units = 2'400, .pools = 12};
    job.options.homes = Homes(*job.options.blocks, nodes);
    job.options.job = {.sample_count = samples,
                       .batch_size = 120 / nodes,
                       .world_size = 2 * nodes,
                       .seed = 3,
                       .epochs = 1};
    const double share = static_cast<double>(samples) / nodes;
    double in = 0;
    double out = 0;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      const EpochOrderOptions stream = job.Node(node);
      std::map<std::string, double> counters;
      std::uint64_t sent = 0;
      std::uint64_t parcels = 0;
      std::uint64_t received = 0;
      const std::vector<Step> steps = Pull(stream, {}, &counters);
      for (const Step& step : steps) {
        ASSERT_EQ(step.parcels.size(), nodes - 1);  // One for each other node.
        for (const Parcel& parcel : step.parcels) sent += parcel.samples.size();
        parcels += step.parcels.size();
        for (const BlockRead& read : step.reads) {
          if (read.home != kNoNode) received += read.kept.size();
        }
      }
      EXPECT_EQ(counters.at("samples_read"), share);
      EXPECT_EQ(counters.at("samples_sent"), static_cast<double>(sent));
      EXPECT_EQ(counters.at("units_sent"), static_cast<double>(sent));
      EXPECT_EQ(counters.at("parcels_sent"), static_cast<double>(parcels));
      EXPECT_EQ(counters.at("samples_received"), static_cast<double>(received));
      EXPECT_EQ(counters.at("units_received"), static_cast<double>(received));
      EXPECT_EQ(counters.at("parcels_received"), static_cast<double>(parcels));
      EXPECT_NEAR(counters.at("units_sent") / share, (nodes - 1.0) / nodes, 0.02);
      EXPECT_NEAR(counters.at("units_received") / share, (nodes - 1.0) / nodes, 0.02);
      EXPECT_LE(counters.at("resident_units_peak"),
                static_cast<double>(ResidentUnits(stream, job.table)));
      // A third of the pools and two steps of parcels each way, and not the pools of all.
      EXPECT_EQ(ResidentUnits(stream, job.table), 2'400 / nodes + 2 * 2 * 240 / nodes);
      in += counters.at("units_received");
      out += counters.at("units_sent");
    }
    EXPECT_EQ(in, out);
  }
}

// Every rank sees every home: its rows are a random part of the global batch.
TEST(EpochHomesOrderTest, EveryRankGetsSamplesOfEveryHomeInProportion) {
  const auto blocks = MakeUniformBlocks(12'000, 10);
  std::vector<std::uint32_t> homes;  // Half, a third and a sixth of the blocks.
  for (std::uint32_t sample = 0; sample < 12'000; ++sample) {
    constexpr std::array<std::uint32_t, 6> kHomes = {0, 1, 0, 2, 1, 0};
    homes.push_back(kHomes.at(sample / 10 % 6));
  }
  Job job;
  job.table = Table(homes);
  job.options = {.blocks = blocks, .pool_units = 1'200, .pools = 6};
  job.options.homes = Homes(*blocks, 3, job.table);
  job.options.job = {
      .sample_count = 12'000, .batch_size = 20, .world_size = 3, .seed = 5, .epochs = 1};
  for (std::uint32_t node = 0; node < 3; ++node) {
    std::map<std::uint32_t, double> of_home;
    for (const Step& step : Pull(job.Node(node))) {
      std::map<std::uint32_t, std::uint64_t> in_step;
      for (const Delivery& each : step.deliveries) ++in_step[homes[Raw(each.sample)]];
      for (const auto& [home, count] : in_step) of_home[home] += static_cast<double>(count);
    }
    EXPECT_NEAR(of_home[0] / 4'000, 1.0 / 2, 0.02);
    EXPECT_NEAR(of_home[1] / 4'000, 1.0 / 3, 0.02);
    EXPECT_NEAR(of_home[2] / 4'000, 1.0 / 6, 0.02);
  }
}

// Also in tests/python/test_order_epoch.py: the order is part of the contract between nodes.
TEST(EpochHomesOrderTest, OrderIsFrozen) {
  EpochOrderOptions options{.blocks = MakeUniformBlocks(24, 4), .pool_units = 16, .pools = 2};
  options.homes = Homes(*options.blocks, 2);
  options.job = {.sample_count = 24, .batch_size = 4, .seed = 7, .epochs = 2};
  ExpectFrozen(options, 0, {21, 11, 23, 8, 12, 9, 10, 22}, 5285069229543978399U);
  ExpectFrozen(options, 1, {5, 6, 10, 8, 15, 7, 3, 2}, 17967775041941671779U);
}

TEST(EpochHomesOrderTest, APlanThatNodesCannotShareIsNamedWithTheWayOut) {
  const auto blocks = MakeUniformBlocks(100, 10);
  EpochOrderOptions options{.job = {.sample_count = 100, .batch_size = 2, .world_size = 6},
                            .blocks = blocks,
                            .pool_units = 120,
                            .pools = 3,
                            .homes = Homes(*blocks, 3)};
  const auto error = [](const EpochOrderOptions& wrong) {
    const Status status = MakeEpochOrder(wrong, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(MakeEpochOrder(options, {}).ok());
  options.job.exchange = true;
  options.job.ranks = 2;
  EXPECT_TRUE(MakeEpochOrder(options, {}).ok());
  EpochOrderOptions wrong = options;
  wrong.pools = 4;
  EXPECT_EQ(error(wrong),
            "order epoch: pools: got 4, must be a multiple of homes (3): every home "
            "has equally many");
  wrong = options;
  wrong.pools = 9;
  EXPECT_TRUE(MakeEpochOrder(options, {}).ok());
  wrong.homes = Homes(*blocks, 3, Table([] {
    std::vector<std::uint32_t> homes(100, 0);
    std::fill(homes.begin() + 60, homes.end(), 1);
    std::fill(homes.begin() + 80, homes.end(), 2);
    return homes;
  }()));
  EXPECT_EQ(error(wrong),
            "order epoch: pools: got 9, 3 a home, but node 1 is the home of 2 blocks "
            "only; lower pools to 6, or make the blocks smaller");
  wrong = options;
  wrong.job.ranks = 3;
  EXPECT_EQ(error(wrong),
            "order epoch: homes: got 3, must be 2, the number of nodes, as each reads "
            "its own blocks only");
  wrong.homes = nullptr;
  EXPECT_THAT(error(wrong), HasSubstr("homes: got 1, must be 2"));
  wrong = options;
  wrong.job.rank = 1;
  EXPECT_EQ(error(wrong),
            "order epoch: ranks 1 to 2 of 6 exchange samples as one node, but nodes of 2 ranks "
            "begin at multiples of it; give every node equally many ranks");
  wrong.job.rank = 0;
  wrong.job.ranks = 4;
  EXPECT_THAT(error(wrong), HasSubstr("ranks 0 to 3 of 6"));
  wrong = options;
  wrong.job.batch_size = std::uint64_t{1} << 24;
  wrong.job.world_size = 18;
  wrong.job.ranks = 6;
  EXPECT_EQ(
      error(wrong),
      "batch_size 16777216 x world_size 18 with order epoch and homes=3: every node deals the "
      "whole global batch, which may have 268435456 samples at most; lower batch_size, or use "
      "homes=1");
  wrong = options;
  wrong.blocks = MakeUniformBlocks(std::uint64_t{1} << 32, 1 << 20);
  wrong.homes = Homes(*wrong.blocks, 3);
  wrong.job.sample_count = std::uint64_t{1} << 32;
  wrong.pool_units = 12 << 20;
  EXPECT_EQ(error(wrong),
            "order epoch: nodes exchange samples of a dataset of at most 4294967295 samples, this "
            "one has 4294967296; use storage that every node can read");
}

}  // namespace
}  // namespace headrace
