// For every order: the stream of several ranks, a node's, equals the streams of these ranks
// together.

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "plan/order_factory.h"
#include "plan/testing/odd_blocks.h"
#include "plan/testing/stream_ledger.h"

namespace headrace {
namespace {

using Ids = std::vector<std::uint64_t>;

struct Case {
  std::string name;
  const OrderFactory* order = nullptr;
  OrderRequest request;
};

std::vector<Step> PullCase(const Case& of, Position start = {}) {
  auto order = of.order->Make(of.request, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  if (!order.ok()) return steps;
  while (auto step = order.value()->Next()) steps.push_back(*std::move(step));
  return steps;
}

// Uneven blocks of uneven samples.
std::shared_ptr<const BlockMap> Blocks(std::uint64_t samples, std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kAugment);
  std::vector<std::uint32_t> counts;
  for (std::uint64_t left = samples; left > 0; left -= counts.back()) {
    counts.push_back(static_cast<std::uint32_t>(std::min(left, 1 + prng.Below(7))));
  }
  std::vector<std::uint32_t> units(samples);
  for (std::uint32_t& each : units) each = static_cast<std::uint32_t>(1 + prng.Below(5));
  return std::make_shared<OddBlocks>(counts, std::move(units));
}

SampleTable DrawnTable(std::uint64_t samples, std::uint64_t below, std::uint64_t seed) {
  Prng prng(seed, 1, RandomStream::kAugment);
  std::vector<std::uint32_t> table(samples);
  for (std::uint32_t& each : table) each = static_cast<std::uint32_t>(prng.Below(below));
  table[0] = 0;  // Node 0, which every job has.
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(table));
}

// Every order with these ranks, with several parameters; pools that divide the world size and that
// do not.
std::vector<Case> Cases(const OrderOptions& job) {
  RegisterPapers();
  const std::uint64_t samples = job.sample_count;
  const auto number = [](std::int64_t value) { return OrderParameter(value); };
  std::vector<Case> cases;
  const auto add = [&](const char* order, OrderParameters parameters) -> OrderRequest& {
    std::string name = std::string(order) + ": " + std::to_string(samples) + " samples, batch " +
                       std::to_string(job.batch_size) + ", ranks [" + std::to_string(job.rank) +
                       ", " + std::to_string(job.rank + job.ranks) + ") of " +
                       std::to_string(job.world_size) + (job.drop_last ? ", drop_last" : "");
    for (const auto& [key, value] : parameters) {
      const auto* word = std::get_if<std::string>(&value);
      name.append(", ").append(key).append(" ").append(
          word != nullptr ? *word : std::to_string(std::get<std::int64_t>(value)));
    }
    OrderRequest request{.job = job, .parameters = std::move(parameters)};
    cases.push_back({.name = std::move(name), .order = Orders().Find(order), .request = request});
    return cases.back().request;
  };
  add("exact", {});
  for (const std::int64_t per_node : {1, 3}) {
    OrderRequest& batch = add("batch", {{"ranks_per_node", number(per_node)}});
    batch.homes = DrawnTable(2 * samples, job.world_size, job.seed);
    batch.costs = DrawnTable(samples, 100, job.seed);
  }
  const std::shared_ptr<const BlockMap> blocks = Blocks(samples, job.seed);
  for (const std::int64_t pools : {1, 3, 4, 8, 12}) {
    if (static_cast<std::uint64_t>(pools) > blocks->block_count()) continue;
    add("epoch", {{"pools", number(pools)}}).blocks = blocks;
  }
  for (const std::int64_t homes : {2, 3}) {
    if (static_cast<std::uint64_t>(2 * homes) > blocks->block_count()) continue;
    add("epoch", {{"homes", number(homes)}, {"pools", number(2 * homes)}}).blocks = blocks;
  }
  add("redox", {{"chunks_per_virtual", number(3)}}).blocks = blocks;
  add("redox", {{"chunks_per_virtual", number(5)},
                {"mapping", "interleaved"},
                {"nodes", number(3)},
                {"prefetch", number(4)},
                {"remote_bytes", number(2560)},
                {"memory_bytes", number(3840)}})
      .blocks = blocks;
  return cases;
}

// Ranges of ranks: all, a half, one that divides nothing; (first, how many).
std::vector<std::pair<std::uint32_t, std::uint32_t>> Ranges(std::uint32_t world) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> ranges = {{0, world}};
  for (const std::uint32_t ranks : {(world + 1) / 2, world / 2, 3U}) {
    if (ranks == 0 || ranks > world) continue;
    ranges.insert({0, ranks});
    ranges.insert({(world - ranks) / 2, ranks});
    ranges.insert({world - ranks, ranks});
  }
  return {ranges.begin(), ranges.end()};
}

#ifdef NDEBUG
constexpr std::array kWorldSizes = {1U, 2U, 3U, 4U, 5U, 6U, 8U, 11U, 16U};
#else
constexpr std::array kWorldSizes = {1U, 2U, 3U, 4U, 11U};  // Slow builds look for other mistakes.
#endif

// Calls `check` with every order for every range of ranks of these world sizes.
template <typename Check>
void ForAll(const std::vector<std::uint64_t>& sample_counts, const Check& check) {
  std::uint64_t seed = 0;
  for (const std::uint32_t world : kWorldSizes) {
    for (const auto& [rank, ranks] : Ranges(world)) {
      for (const std::uint64_t samples : sample_counts) {
        for (const bool drop_last : {false, true}) {
          const OrderOptions job{.sample_count = samples,
                                 .batch_size = 1 + seed % 5,
                                 .world_size = world,
                                 .rank = rank,
                                 .ranks = ranks,
                                 .seed = seed++,
                                 .drop_last = drop_last,
                                 .epochs = 2};
          if (!StepsPerEpoch(job).ok()) continue;  // drop_last and nothing left
          for (const Case& each : Cases(job)) {
            SCOPED_TRACE(each.name);
            check(each);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Without the numbers of block reads, which differ by stream.
bool Same(const Delivery& a, const Delivery& b) {
  return a.sample == b.sample && a.rank == b.rank && a.slot == b.slot &&
         (a.block_read == kNoBlockRead) == (b.block_read == kNoBlockRead);
}

void ExpectTheRanksOwn(const Case& node) {
  const std::vector<Step> whole = PullCase(node);
  const OrderOptions& job = node.request.job;
  ASSERT_EQ(whole.size(), StepsPerEpoch(job).value() * job.epochs);
  for (std::uint32_t lane = 0; lane < job.ranks; ++lane) {
    Case single = node;
    single.request.job.rank = job.rank + lane;
    single.request.job.ranks = 1;
    const std::vector<Step> steps = PullCase(single);
    ASSERT_EQ(steps.size(), whole.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE("rank " + std::to_string(job.rank + lane) + " step " + std::to_string(i));
      ASSERT_EQ(whole[i].epoch, steps[i].epoch);
      ASSERT_EQ(whole[i].step, steps[i].step);
      ASSERT_EQ(whole[i].ends_epoch, steps[i].ends_epoch);
      const std::size_t rows = steps[i].deliveries.size();
      ASSERT_EQ(whole[i].deliveries.size(), rows * job.ranks);
      for (std::size_t slot = 0; slot < rows; ++slot) {
        ASSERT_TRUE(Same(whole[i].deliveries[lane * rows + slot], steps[i].deliveries[slot]));
      }
    }
  }
}

TEST(NodeStreamTest, GivesEveryRankWhatItsOwnStreamGives) {
  ForAll({1, 7, 64, 97, 211}, ExpectTheRanksOwn);
}

TEST(NodeStreamTest, KeepsWhatIsDeliveredOrReleasedWithinThePromisedMemory) {
  ForAll({1, 7, 64, 97, 211}, [](const Case& node) {
    if (!node.order->reads_blocks()) return;
    StreamLedger ledger(*node.request.blocks, node.order->ResidentUnits(node.request).value());
    for (const Step& step : PullCase(node)) ASSERT_NO_FATAL_FAILURE(ledger.Run(step));
    ASSERT_EQ(ledger.resident_units(), 0U);
  });
}

// For each sample how often a stream of `epoch` reads it.
std::map<std::uint64_t, std::uint64_t> Reads(const Case& of) {
  std::map<std::uint64_t, std::uint64_t> times;
  for (const Step& step : PullCase(of)) {
    for (const BlockRead& read : step.reads) {
      for (const std::uint64_t sample : StreamLedger::Kept(read)) ++times[sample];
    }
  }
  return times;
}

TEST(NodeStreamTest, ReadsABlockOfAnEpochOnceForAllItsRanks) {
  ForAll({64, 97, 211}, [](const Case& node) {
    if (node.order->name() != "epoch" || node.request.job.drop_last) return;
    const OrderOptions& job = node.request.job;
    const std::map<std::uint64_t, std::uint64_t> reads = Reads(node);
    std::set<std::uint64_t> of_ranks;
    for (std::uint32_t lane = 0; lane < job.ranks; ++lane) {
      Case single = node;
      single.request.job.rank = job.rank + lane;
      single.request.job.ranks = 1;
      for (const auto& [sample, times] : Reads(single)) of_ranks.insert(sample);
    }
    ASSERT_EQ(reads.size(), of_ranks.size());
    for (const auto& [sample, times] : reads) ASSERT_LE(times, job.epochs) << sample;
    if (job.ranks < job.world_size) return;
    ASSERT_EQ(reads.size(), job.sample_count);
    for (const auto& [sample, times] : reads) ASSERT_EQ(times, job.epochs) << sample;
  });
}

// Three pools, of which every rank draws from all.
TEST(NodeStreamTest, RanksThatSharePoolsReadNoMoreThanOne) {
  Case each{.name = "", .order = &EpochOrderFactory(), .request = {}};
  each.request.job = {.sample_count = 960, .batch_size = 4, .world_size = 8, .epochs = 2};
  each.request.parameters = {{"pools", std::int64_t{3}}, {"pool_bytes", std::int64_t{96}}};
  each.request.blocks = MakeUniformBlocks(960, 10);
  const auto count = [&](std::uint32_t rank, std::uint32_t ranks) {
    each.request.job.rank = rank;
    each.request.job.ranks = ranks;
    std::size_t reads = 0;
    for (const Step& step : PullCase(each)) reads += step.reads.size();
    return reads;
  };
  EXPECT_EQ(count(0, 1), 2 * 96);
  EXPECT_EQ(count(4, 4), 2 * 96);
  EXPECT_EQ(count(0, 8), 2 * 96);
  EXPECT_EQ(EpochOrderFactory().ResidentUnits(each.request).value(), 96U);
}

// The contents of a step by samples: the numbers of reads depend on where a stream began.
Ids Named(const Step& step) {
  Ids ids;
  for (const Delivery& each : step.deliveries) ids.push_back(Raw(each.sample));
  for (const Release& each : step.releases) ids.push_back(Raw(each.sample));
  return ids;
}

TEST(NodeStreamTest, EveryPositionGivesTheRemainder) {
  ForAll({7, 53}, [](const Case& node) {
    const std::vector<Step> whole = PullCase(node);
    const bool blocks = node.order->reads_blocks();
    for (std::size_t at = 0; at < whole.size(); ++at) {
      SCOPED_TRACE("from step " + std::to_string(at));
      const std::vector<Step> rest = PullCase(node, {whole[at].epoch, whole[at].step});
      ASSERT_EQ(rest.size(), whole.size() - at);
      std::optional<StreamLedger> ledger;
      if (blocks) {
        ledger.emplace(*node.request.blocks, node.order->ResidentUnits(node.request).value());
      }
      for (std::size_t i = 0; i < rest.size(); ++i) {
        ASSERT_EQ(rest[i].epoch, whole[at + i].epoch);
        ASSERT_EQ(rest[i].step, whole[at + i].step);
        ASSERT_EQ(Named(rest[i]), Named(whole[at + i]));
        ASSERT_TRUE(std::ranges::equal(rest[i].deliveries, whole[at + i].deliveries, Same));
        if (!blocks) continue;
        ASSERT_NO_FATAL_FAILURE(ledger->Run(rest[i]));
      }
      ASSERT_TRUE(!blocks || ledger->resident_units() == 0);
    }
  });
}

}  // namespace
}  // namespace headrace
