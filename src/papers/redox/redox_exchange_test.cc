// The `redox` order over nodes that read their own chunks only and send each other samples.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/testing/any_redox.h"
#include "plan/testing/exchange_ledger.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::uint64_t>;
using Counters = std::map<std::string, double>;

#ifdef NDEBUG
constexpr std::uint64_t kExchangeRuns = 400;
#else
constexpr std::uint64_t kExchangeRuns = 100;
#endif

// Random options of a job of several nodes that exchange samples.
RedoxOrderOptions AnyExchange(std::uint64_t seed) {
  RedoxOrderOptions options = AnyRedox(seed);
  options.nodes = static_cast<std::uint32_t>(1 + seed % 5);
  options.job.ranks = static_cast<std::uint32_t>(1 + seed / 5 % 3);
  options.job.world_size = options.nodes * options.job.ranks;
  options.job.exchange = true;
  if (seed / 2 % 2 == 1) options.framing = RedoxOrderOptions::Framing::kSplit;
  Prng prng(seed, 1, RandomStream::kOrder, 98);
  options.homes = seed % 3 == 0 ? AnyHomes(*options.blocks, options.nodes, prng) : nullptr;
  if (options.job.sample_count < options.job.batch_size * options.job.world_size) {
    options.job.drop_last = false;
  }
  return options;
}

RedoxOrderOptions OfNode(RedoxOrderOptions options, std::uint32_t node) {
  options.job.rank = node * options.job.ranks;
  return options;
}

// The streams of all nodes, side by side.
class NodeStreams {
 public:
  explicit NodeStreams(const RedoxOrderOptions& options, Position start = {})
      : layout_(RedoxLayout::Make(options).value()),
        ledger_(
            *options.blocks, options.job, Limits(options),
            [layout = layout_](std::uint64_t sample) {
              return layout->slots()[layout->slots_of_samples()[sample]].home;
            },
            start) {
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
      auto order = MakeRedoxOrder(OfNode(options, node), start);
      EXPECT_TRUE(order.ok()) << order.status().ToString();
      orders_.push_back(std::move(order).value());
    }
  }

  // The next step of every node, checked; empty after the last.
  std::vector<Step> Next() {
    std::vector<Step> steps;
    for (const auto& order : orders_) {
      if (auto step = order->Next()) steps.push_back(*std::move(step));
    }
    if (steps.empty()) {
      ledger_.Finish();
    } else {
      ledger_.Run(steps);
    }
    return steps;
  }

  [[nodiscard]] Counters counters(std::uint32_t node) const { return orders_[node]->counters(); }
  [[nodiscard]] const ExchangeLedger& ledger() const { return ledger_; }
  static std::vector<std::uint64_t> Limits(const RedoxOrderOptions& options) {
    std::vector<std::uint64_t> limits;
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
      limits.push_back(RedoxResidentUnits(OfNode(options, node)).value());
    }
    return limits;
  }

 private:
  const std::shared_ptr<const RedoxLayout> layout_;
  ExchangeLedger ledger_;
  std::vector<std::unique_ptr<Order>> orders_;
};

// The samples of a step by global position. Of `nodes` nodes with `ranks` ranks each.
Ids Positions(const std::vector<Step>& steps, std::uint32_t nodes, std::uint32_t ranks) {
  Ids ids;
  for (const Step& step : steps) ids.resize(ids.size() + step.deliveries.size());
  for (const Step& step : steps) {
    for (const Delivery& each : step.deliveries) {
      const std::uint32_t node = each.rank / ranks;
      ids[(std::uint64_t{each.slot} * ranks + each.rank % ranks) * nodes + node] = Raw(each.sample);
    }
  }
  return ids;
}

// The samples of all positions of the same order in a stream that reads everything itself.
std::vector<Ids> Whole(RedoxOrderOptions options) {
  options.job.exchange = false;
  options.job.batch_size *= options.job.world_size;
  options.job.world_size = options.job.ranks = 1;
  options.job.rank = 0;
  auto order = MakeRedoxOrder(options, {}).value();
  std::vector<Ids> all;
  while (const auto step = order->Next()) {
    Ids& ids = all.emplace_back();
    for (const Delivery& each : step->deliveries) ids.push_back(Raw(each.sample));
  }
  return all;
}

TEST(RedoxExchangeTest, NodesGiveEachOtherWhatOneStreamGivesAndReadTheirOwnChunksOnly) {
  for (std::uint64_t seed = 0; seed < kExchangeRuns; ++seed) {
    SCOPED_TRACE(seed);
    const RedoxOrderOptions options = AnyExchange(seed);
    const std::vector<Ids> whole = Whole(options);
    NodeStreams streams(options);
    std::size_t at = 0;
    for (std::vector<Step> steps; !(steps = streams.Next()).empty(); ++at) {
      ASSERT_FALSE(HasFailure());
      Ids ids = Positions(steps, options.nodes, options.job.ranks);
      ASSERT_LT(at, whole.size());
      ASSERT_GE(ids.size(), whole[at].size());  // The stream of one rank has no pad set.
      if (options.job.drop_last) {
        ASSERT_EQ(ids.size(), whole[at].size());
      }
      for (std::size_t g = whole[at].size(); g < ids.size(); ++g) {
        ASSERT_EQ(ids[g], ids[(g - whole[at].size()) % whole[at].size()]);
      }
      ids.resize(whole[at].size());
      ASSERT_EQ(ids, whole[at]);
    }
    ASSERT_EQ(at, whole.size());
    ASSERT_FALSE(HasFailure());
  }
}

TEST(RedoxExchangeTest, MoreRanksOnEachNodeKeepTheGlobalBatches) {
  const auto batches = [](std::uint32_t ranks) {
    RedoxOrderOptions options;
    options.nodes = 3;
    options.job = {.sample_count = 960,
                   .batch_size = 32 / ranks,
                   .world_size = 3 * ranks,
                   .ranks = ranks,
                   .exchange = true,
                   .seed = 5,
                   .epochs = 2};
    options.blocks = MakeUniformBlocks(960, 16);
    options.chunks_per_virtual = 4;
    options.prefetch = 20;
    std::vector<Ids> all;
    NodeStreams streams(options);
    for (std::vector<Step> steps; !(steps = streams.Next()).empty();) {
      all.push_back(Positions(steps, 3, ranks));
    }
    return all;
  };
  const std::vector<Ids> one = batches(1);
  EXPECT_EQ(one.size(), 20U);
  EXPECT_EQ(one, batches(2));
  EXPECT_EQ(one, batches(4));
}

TEST(RedoxExchangeTest, EveryPositionGivesTheRemainder) {
  for (std::uint64_t seed = 0; seed < kExchangeRuns; seed += 3) {
    SCOPED_TRACE(seed);
    const RedoxOrderOptions options = AnyExchange(seed);
    if (options.job.sample_count > 128) continue;  // Each step is entered: quadratic time.
    std::vector<std::pair<Position, Ids>> whole;
    NodeStreams streams(options);
    for (std::vector<Step> steps; !(steps = streams.Next()).empty();) {
      whole.emplace_back(Position{steps[0].epoch, steps[0].step},
                         Positions(steps, options.nodes, options.job.ranks));
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
      SCOPED_TRACE(StepText(whole[at].first));
      NodeStreams rest(options, whole[at].first);
      std::size_t i = at;
      for (std::vector<Step> steps; !(steps = rest.Next()).empty(); ++i) {
        ASSERT_FALSE(HasFailure());
        ASSERT_LT(i, whole.size());
        ASSERT_EQ(Position({steps[0].epoch, steps[0].step}), whole[i].first);
        ASSERT_EQ(Positions(steps, options.nodes, options.job.ranks), whole[i].second);
      }
      ASSERT_EQ(i, whole.size());
    }
  }
}

TEST(RedoxExchangeTest, EachParcelIsAnAnswerWithWhatIsSentAlongAndTheCountersAgree) {
  bool sent_along = false;
  bool sent_ahead = false;
  for (std::uint64_t seed = 0; seed < kExchangeRuns; ++seed) {
    SCOPED_TRACE(seed);
    RedoxOrderOptions options = AnyExchange(seed);
    options.job.drop_last = true;  // No pad set, which has parcels, too.
    if (!StepsPerEpoch(options.job).ok()) continue;
    NodeStreams streams(options);
    const bool split = options.framing == RedoxOrderOptions::Framing::kSplit;
    std::map<std::uint32_t, std::uint64_t> parcels;
    std::uint64_t ahead = 0;
    std::map<std::uint32_t, std::uint64_t> received;
    std::map<std::uint32_t, std::uint64_t> chunk_reads;
    for (std::vector<Step> steps; !(steps = streams.Next()).empty();) {
      for (std::uint32_t node = 0; node < options.nodes; ++node) {
        parcels[node] += steps[node].parcels.size();
        for (const Parcel& each : steps[node].parcels) {
          ahead += each.ahead;
          ASSERT_TRUE(!split || each.ahead || each.samples.size() == 1);
        }
        for (const BlockRead& read : steps[node].reads) {
          const bool whole = options.read == RedoxOrderOptions::Reading::kChunk;
          ASSERT_EQ(read.whole, whole && read.home == kNoNode);
          ++(read.home == kNoNode ? chunk_reads : received)[node];
        }
      }
    }
    Counters sums;
    for (std::uint32_t node = 0; node < options.nodes; ++node) {
      Counters counters = streams.counters(node);
      ASSERT_EQ(counters["parcels_sent"], parcels[node]);
      ASSERT_EQ(counters["parcels_received"], received[node]);
      ASSERT_EQ(counters["node_misses"], chunk_reads[node]);
      std::uint64_t samples = 0;
      for (std::uint32_t to = 0; to < options.nodes; ++to) {
        samples += streams.ledger().sent(node, to);
      }
      ASSERT_EQ(counters["samples_sent"], samples);
      for (const char* each : {"parcels_sent", "parcels_sent_ahead", "parcels_received",
                               "samples_sent", "bytes_sent", "node_misses"}) {
        sums[each] += counters[each];
      }
      for (const char* each : {"node_peak_remote_bytes", "node_peak_resident_bytes"}) {
        sums[each] = std::max(sums[each], counters[each]);
      }
      ASSERT_LE(counters["node_peak_resident_bytes"],
                RedoxResidentUnits(OfNode(options, node)).value() * OddBlocks::kUnitBytes);
    }
    Counters job = streams.counters(0);
    ASSERT_EQ(sums["parcels_sent_ahead"], ahead);
    ASSERT_TRUE(split || ahead == 0);
    ASSERT_EQ(sums["parcels_sent"], job["remote_requests"] + sums["parcels_sent_ahead"]);
    ASSERT_EQ(sums["parcels_received"], sums["parcels_sent"]);
    ASSERT_EQ(sums["samples_sent"], job["remote_requests"] + job["prefetched"]);
    ASSERT_EQ(sums["bytes_sent"], job["remote_bytes"]);
    ASSERT_EQ(sums["node_misses"], job["misses"]);
    ASSERT_EQ(sums["node_peak_remote_bytes"], job["peak_remote_bytes"]);
    sent_along = sent_along || job["prefetched"] > 0;
    sent_ahead = sent_ahead || ahead > 0;
  }
  EXPECT_TRUE(sent_along);
  EXPECT_TRUE(sent_ahead);
}

TEST(RedoxExchangeTest, EachOfThreeNodesNeedsAboutAThird) {
  RedoxOrderOptions options;
  options.nodes = 3;
  options.job = {.sample_count = std::uint64_t{64} * 10 * 30,
                 .batch_size = 64,
                 .world_size = 3,
                 .exchange = true,
                 .epochs = 1};
  options.blocks = MakeUniformBlocks(options.job.sample_count, 64);
  // Thirty virtual chunks of 64 slots; and an answer.
  EXPECT_EQ(NodeStreams::Limits(options), (Ids{641, 641, 641}));
  options.prefetch = 300;
  options.remote_units = 100;
  EXPECT_EQ(NodeStreams::Limits(options), (Ids{741, 741, 741}));
  options.remote_units = 0;
  EXPECT_EQ(NodeStreams::Limits(options), (Ids{1921, 1921, 1921}));
  options.job.exchange = false;
  EXPECT_EQ(RedoxResidentUnits(options).value(), 1920U + 3 * 1280);
}

// Those of the streams in docs/orders.md.
RedoxOrderOptions FrozenOptions() {
  RedoxOrderOptions options;
  options.nodes = 2;
  options.job = {.sample_count = 12,
                 .batch_size = 2,
                 .world_size = 2,
                 .exchange = true,
                 .seed = 7,
                 .epochs = 1};
  options.blocks = MakeUniformBlocks(12, 3);
  options.chunks_per_virtual = 1;
  options.prefetch = 3;
  return options;
}

// As docs/orders.md and tests/python/redox/test_redox.py have it.
TEST(RedoxExchangeTest, StreamsOfTwoNodesAreFrozen) {
  NodeStreams streams(FrozenOptions());
  const std::vector<Step> first = streams.Next();
  ASSERT_EQ(first.size(), 2U);
  const BlockRead parcel{
      .number = 0, .first = SampleId{3}, .count = 2, .kept = {}, .home = 1, .parcel = 0};
  const BlockRead chunk{.number = 1, .first = SampleId{6}, .count = 3, .kept = {}};
  EXPECT_EQ(first[0].reads, (std::vector<BlockRead>{parcel, chunk}));
  EXPECT_EQ(first[0].deliveries, (std::vector<Delivery>{
                                     {.sample = SampleId{3}, .rank = 0, .slot = 0, .block_read = 0},
                                     {.sample = SampleId{6}, .rank = 0, .slot = 1, .block_read = 1},
                                 }));
  EXPECT_EQ(first[0].parcels,
            (std::vector<Parcel>{
                {.node = 1, .number = 0, .samples = {{.block_read = 1, .sample = SampleId{8}}}},
            }));
  EXPECT_EQ(first[1].parcels, (std::vector<Parcel>{
                                  {.node = 0,
                                   .number = 0,
                                   .samples = {{.block_read = 0, .sample = SampleId{3}},
                                               {.block_read = 0, .sample = SampleId{4}}}},
                              }));
  EXPECT_EQ(Positions(first, 2, 1), (Ids{3, 8, 6, 5}));
  EXPECT_EQ(Positions(streams.Next(), 2, 1), (Ids{7, 11, 0, 10}));
  EXPECT_EQ(Positions(streams.Next(), 2, 1), (Ids{4, 9, 1, 2}));
}

// As docs/orders.md has them, with the answers alone.
TEST(RedoxExchangeTest, StreamsWhoseAnswersGoAloneAreFrozen) {
  RedoxOrderOptions options = FrozenOptions();
  options.framing = RedoxOrderOptions::Framing::kSplit;
  NodeStreams streams(options);
  const std::vector<Step> first = streams.Next();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[1].parcels,
            (std::vector<Parcel>{
                {.node = 0, .number = 0, .samples = {{.block_read = 0, .sample = SampleId{3}}}},
                {.node = 0,
                 .number = 1,
                 .samples = {{.block_read = 0, .sample = SampleId{4}}},
                 .ahead = true},
            }));
  const auto parcel = [](std::uint64_t number, std::uint64_t sample) {
    return BlockRead{.number = number,
                     .first = SampleId{sample},
                     .count = 1,
                     .kept = {},
                     .home = 1,
                     .parcel = number};
  };
  EXPECT_EQ(first[0].reads,
            (std::vector<BlockRead>{parcel(0, 3),
                                    parcel(1, 4),
                                    {.number = 2, .first = SampleId{6}, .count = 3, .kept = {}}}));
  EXPECT_EQ(Positions(first, 2, 1), (Ids{3, 8, 6, 5}));
  EXPECT_EQ(Positions(streams.Next(), 2, 1), (Ids{7, 11, 0, 10}));
  EXPECT_EQ(Positions(streams.Next(), 2, 1), (Ids{4, 9, 1, 2}));
}

TEST(RedoxExchangeTest, JobsThatCannotExchangeAreRefused) {
  RedoxOrderOptions options;
  options.nodes = 2;
  options.job = {.sample_count = 40, .batch_size = 2, .world_size = 6, .exchange = true};
  options.job.ranks = 2;
  options.blocks = MakeUniformBlocks(40, 4);
  const auto error = [&] {
    const Status status = MakeRedoxOrder(options, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(RedoxResidentUnits(options).status().message(), status.message());
    return std::string(status.message());
  };
  EXPECT_EQ(
      error(),
      "nodes of order redox: got 2, but the job has 3 nodes, each with the disks of one home; "
      "give this number, or none");
  options.nodes = 3;
  options.job.rank = 1;
  EXPECT_THAT(error(), HasSubstr("a stream has ranks [1, 3) of 6"));
  options.job.rank = 0;
  options.trace = std::make_shared<const std::vector<SampleId>>(40);
  EXPECT_THAT(error(), HasSubstr("got a sampler"));
}

}  // namespace
}  // namespace headrace
