// Options of the `redox` order beyond the papers' protocol: homes of blocks, maps that change,
// requests in arrival order, whole chunks.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"
#include "papers/redox/redox_requests.h"
#include "papers/redox/testing/any_redox.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using Chunks = std::vector<std::uint32_t>;

// Of each virtual chunk: its home, and its chunks.
std::vector<std::pair<std::uint32_t, Chunks>> Map(const RedoxOrderOptions& options,
                                                  std::uint64_t epoch) {
  const auto layout = RedoxLayout::Make(options, epoch).value();
  std::vector<std::pair<std::uint32_t, Chunks>> map;
  for (const RedoxLayout::Virtual& each : layout->virtual_chunks()) {
    Chunks chunks;
    for (std::uint32_t i = 0; i < each.chunk_count; ++i) chunks.push_back(layout->chunk(each, i));
    map.emplace_back(each.home, std::move(chunks));
  }
  return map;
}

RedoxOrderOptions Uniform(std::uint64_t samples, std::uint64_t chunk, std::uint32_t nodes) {
  RedoxOrderOptions options;
  options.job.sample_count = samples;
  options.job.epochs = 3;
  options.blocks = MakeUniformBlocks(samples, chunk);
  options.chunks_per_virtual = 2;
  options.nodes = nodes;
  return options;
}

TEST(RedoxOptionsTest, RemapDealsEachHomesChunksAnewEachEpoch) {
  RedoxOrderOptions options = Uniform(400, 10, 2);
  const auto fixed = Map(options, 0);
  EXPECT_EQ(Map(options, 1), fixed);
  options.remap = true;
  const auto first = Map(options, 0);
  EXPECT_NE(first, fixed);
  EXPECT_NE(Map(options, 1), first);
  EXPECT_EQ(Map(options, 0), first);
  for (const std::uint64_t epoch : {0U, 1U, 2U}) {
    std::map<std::uint32_t, std::set<std::uint32_t>> of_homes;
    std::map<std::uint32_t, std::set<std::uint32_t>> expected;
    const auto map = Map(options, epoch);
    ASSERT_EQ(map.size(), fixed.size());
    for (std::size_t v = 0; v < map.size(); ++v) {
      EXPECT_EQ(map[v].first, fixed[v].first);
      EXPECT_EQ(map[v].second.size(), fixed[v].second.size());
      of_homes[map[v].first].insert(map[v].second.begin(), map[v].second.end());
      expected[fixed[v].first].insert(fixed[v].second.begin(), fixed[v].second.end());
    }
    EXPECT_EQ(of_homes, expected);
  }
}

TEST(RedoxOptionsTest, GivenHomesHaveVirtualChunksOfTheirOwn) {
  RedoxOrderOptions options = Uniform(70, 10, 3);
  std::vector<std::uint32_t> homes;
  for (const std::uint32_t home : {1U, 0U, 1U, 1U, 0U, 1U, 1U}) homes.insert(homes.end(), 10, home);
  options.homes = std::make_shared<const std::vector<std::uint32_t>>(homes);
  using Expected = std::vector<std::pair<std::uint32_t, Chunks>>;
  EXPECT_EQ(Map(options, 0), (Expected{{0, {1, 4}}, {1, {0}}, {1, {2, 3}}, {1, {5, 6}}}));
  options.mapping = RedoxOrderOptions::Mapping::kInterleaved;
  EXPECT_EQ(Map(options, 0), (Expected{{0, {1, 4}}, {1, {0, 5}}, {1, {2, 6}}, {1, {3}}}));
}

TEST(RedoxOptionsTest, HomesThatAreNotOneNodeABlockAreRefused) {
  RedoxOrderOptions options = Uniform(30, 10, 2);
  const auto error = [&](std::vector<std::uint32_t> homes) {
    options.homes = std::make_shared<const std::vector<std::uint32_t>>(std::move(homes));
    const Status status = MakeRedoxOrder(options, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  std::vector<std::uint32_t> homes(30, 1);
  homes[15] = 0;
  EXPECT_EQ(error(homes),
            "homes of order redox: block 1, samples [10, 20), must have one home below 2: got "
            "several");
  homes.assign(30, 2);
  EXPECT_THAT(error(homes),
              HasSubstr("block 0, samples [0, 10), must have one home below 2: got 2"));
  EXPECT_EQ(error({0, 1}),
            "homes of order redox: got 2 numbers for 30 samples, must be one a sample");
}

TEST(RedoxOptionsTest, RequestsOfAStepArriveInAnyInterleavingOfTheNodes) {
  RedoxOrderOptions options = Uniform(100, 10, 2);
  options.arrival = true;
  RedoxRequests requests(options, RedoxLayout::Make(options).value(), {});
  requests.Begin(0);
  std::map<Chunks, int> times;
  for (std::uint64_t step = 0; step < 600; ++step) {
    const auto arrivals = requests.Arrivals(step, step * 5 + step % 2, 4);
    const Chunks order(arrivals.begin(), arrivals.end());
    ++times[order];
    // Two nodes with two requests each, in order.
    EXPECT_LT(std::ranges::find(order, 0U), std::ranges::find(order, 2U));
    EXPECT_LT(std::ranges::find(order, 1U), std::ranges::find(order, 3U));
  }
  ASSERT_EQ(times.size(), 6U);  // 4 over 2
  for (const auto& [order, count] : times) EXPECT_NEAR(count, 100, 45);
  const auto first = requests.Arrivals(0, 0, 40);
  const Chunks epoch_0(first.begin(), first.end());
  requests.Begin(1);
  EXPECT_FALSE(std::ranges::equal(requests.Arrivals(0, 0, 40), epoch_0));
}

TEST(RedoxOptionsTest, ArrivalChangesWhichSamplesAnswerAndNotHowMany) {
  RedoxOrderOptions options = Uniform(960, 16, 3);
  options.job.batch_size = 96;
  const auto run = [&] {
    std::vector<std::uint64_t> ids;
    auto order = MakeRedoxOrder(options, {}).value();
    while (const auto step = order->Next()) {
      for (const Delivery& each : step->deliveries) ids.push_back(Raw(each.sample));
    }
    return ids;
  };
  std::vector<std::uint64_t> in_order = run();
  options.arrival = true;
  std::vector<std::uint64_t> arrived = run();
  EXPECT_NE(in_order, arrived);
  EXPECT_EQ(arrived, run());
  std::ranges::sort(in_order);
  std::ranges::sort(arrived);
  EXPECT_EQ(in_order, arrived);
}

TEST(RedoxOptionsTest, WholeChunksAreReadForTheSameSamplesAndCounted) {
  RedoxOrderOptions options = AnyRedox(3);
  options.trace = nullptr;
  options.job.world_size = 1;
  options.job.rank = 0;
  std::map<RedoxOrderOptions::Reading, std::map<std::string, double>> counters;
  std::vector<std::vector<BlockRead>> reads;
  for (const auto read : {RedoxOrderOptions::Reading::kKept, RedoxOrderOptions::Reading::kChunk}) {
    options.read = read;
    std::vector<BlockRead>& all = reads.emplace_back();
    std::uint64_t units = 0;
    auto order = MakeRedoxOrder(options, {}).value();
    while (const auto step = order->Next()) {
      for (BlockRead each : step->reads) {
        EXPECT_EQ(each.whole, read == RedoxOrderOptions::Reading::kChunk);
        each.whole = false;
        std::vector<std::uint32_t> charges(each.count);
        options.blocks->Charges(each.first, charges);
        units += std::accumulate(charges.begin(), charges.end(), std::uint64_t{0});
        all.push_back(std::move(each));
      }
    }
    counters[read] = order->counters();
    if (read == RedoxOrderOptions::Reading::kChunk) {
      EXPECT_EQ(counters[read]["read_bytes"], units * OddBlocks::kUnitBytes);
    }
  }
  EXPECT_EQ(reads[0], reads[1]);
  auto& kept = counters[RedoxOrderOptions::Reading::kKept];
  auto& chunk = counters[RedoxOrderOptions::Reading::kChunk];
  EXPECT_EQ(kept["read_bytes"], kept["kept_bytes"]);
  EXPECT_EQ(chunk["kept_bytes"], kept["kept_bytes"]);
  EXPECT_GT(chunk["read_bytes"], kept["read_bytes"]);
  EXPECT_DOUBLE_EQ(chunk["amplification"], chunk["read_bytes"] / chunk["kept_bytes"]);
  EXPECT_EQ(kept["amplification"], chunk["amplification"]);  // what whole chunks would read
}

// Two chunks of two samples on each of two nodes, which ask in turn.
TEST(RedoxOptionsTest, TheStateIsToldInThePapersTerms) {
  RedoxOrderOptions options = Uniform(8, 2, 2);
  options.prefetch = 2;
  options.ties = RedoxOrderOptions::Ties::kFirst;
  std::vector<SampleId> trace;
  for (const std::uint64_t id : {0U, 1U, 4U, 3U, 5U, 2U, 6U, 7U}) trace.push_back(SampleId{id});
  options.trace = std::make_shared<const std::vector<SampleId>>(trace);
  auto order = MakeRedoxOrder(options, {}).value();
  EXPECT_EQ(order->Dump(), "");
  for (int i = 0; i < 3; ++i) static_cast<void>(order->Next());
  // Node 0 got 0; node 1 was sent 1, and no sample for its request for 3, in the same slot. Node 0
  // asked for 4 then: it came with 5, which it will ask for.
  EXPECT_EQ(
      order->Dump(),
      R"({"files":[)"
      R"({"file":0,"VC":0,"PC":0,"O":0,"H":0,"R":0,"sn":0,"node":null,"read":null,"consumed":true},)"
      R"({"file":1,"VC":0,"PC":0,"O":1,"H":0,"R":1,"sn":1,"node":null,"read":null,"consumed":true},)"
      R"({"file":2,"VC":0,"PC":1,"O":0,"H":0,"R":1,"sn":5,"node":null,"read":null,"consumed":false},)"
      R"({"file":3,"VC":0,"PC":1,"O":1,"H":0,"R":1,"sn":3,"node":null,"read":null,"consumed":false},)"
      R"({"file":4,"VC":1,"PC":2,"O":0,"H":1,"R":0,"sn":2,"node":null,"read":null,"consumed":true},)"
      R"({"file":5,"VC":1,"PC":2,"O":1,"H":1,"R":0,"sn":4,"node":0,"read":1,"consumed":true},)"
      R"({"file":6,"VC":1,"PC":3,"O":0,"H":1,"R":0,"sn":6,"node":null,"read":null,"consumed":false},)"
      R"({"file":7,"VC":1,"PC":3,"O":1,"H":1,"R":1,"sn":7,"node":null,"read":null,"consumed":false}],)"
      R"("virtual_chunks":[)"
      R"({"VC":0,"H":0,"PCS":[0,1],"slots":[[],[]]},{"VC":1,"H":1,"PCS":[2,3],"slots":[[],[]]}],)"
      R"("physical_chunks":[)"
      R"({"PC":0,"VC":0,"H":0,"first":0,"files":2},{"PC":1,"VC":0,"H":0,"first":2,"files":2},)"
      R"({"PC":2,"VC":1,"H":1,"first":4,"files":2},{"PC":3,"VC":1,"H":1,"first":6,"files":2}],)"
      R"("buffers":[)"
      R"({"R":0,"H":1,"window":[{"request":0,"VC":1,"slot":0,"map":1},)"
      R"({"request":1,"VC":1,"slot":1,"map":1}]},)"
      R"({"R":1,"H":0,"window":[{"request":0,"VC":0,"slot":1,"map":1},)"
      R"({"request":1,"VC":0,"slot":1,"map":0}]}]})");
}

TEST(RedoxOptionsTest, FillingAheadIsRefusedWithItsReason) {
  OrderRequest request;
  request.job.sample_count = 10;
  request.blocks = MakeUniformBlocks(10, 2);
  request.parameters = {{"fill_ahead", 1}};
  const Status status = RedoxOrderFactory().Resolve(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("depend on all epochs before"));
}

}  // namespace
}  // namespace headrace
