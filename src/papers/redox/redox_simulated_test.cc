// Redox in virtual time: the engines of several nodes, which send each other samples by its plan.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"
#include "sim/job/engine_job.h"
#include "sim/job/fast_job.h"

namespace headrace {
namespace {

using From = SampleFetch::From;
using ::testing::HasSubstr;

constexpr std::uint64_t kSimulatedChunk = 16;
constexpr double kSimulatedBytes = 100'000;
constexpr double kSimulatedRate = 500e6;

OrderParameters RedoxOf(std::uint32_t nodes, std::int64_t prefetch) {
  return {
      {"nodes", std::int64_t{nodes}}, {"block_samples", static_cast<std::int64_t>(kSimulatedChunk)},
      {"chunks_per_virtual", 10},     {"remote_bytes", 0},
      {"prefetch", prefetch},         {"read", "chunk"}};
}

// Storage is the only limit.
SimulatedJob StoredJob(std::uint32_t nodes) {
  SimulatedJob job;
  job.sizes.assign(9600, kSimulatedBytes);
  job.batch_size = 20;
  job.epochs = 2;
  job.seed = 5;
  job.cluster.nodes = nodes;
  job.cluster.staging_bytes = 400e6;
  job.cluster.staging_threads = 4;
  job.cluster.reads_share = true;
  job.cluster.storage = Curve::Make({{.users = 1, .rate = kSimulatedRate}}).value();
  return job;
}

EngineJobResult Simulate(const SimulatedJob& job, std::int64_t prefetch) {
  RegisterPapers();
  Result<EngineJobResult> result =
      RunEngines(job, {.order = "redox", .parameters = RedoxOf(job.cluster.nodes, prefetch)});
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? std::move(result).value() : EngineJobResult();
}

// What the plans of all nodes say.
struct Planned {
  std::uint64_t reads = 0;
  std::uint64_t sent = 0;  // samples
};

Planned PlannedOf(const SimulatedJob& job, std::int64_t prefetch) {
  RegisterPapers();
  Planned planned;
  for (std::uint32_t node = 0; node < job.cluster.nodes; ++node) {
    OrderRequest request;
    request.job = {.sample_count = job.sizes.size(),
                   .batch_size = job.batch_size,
                   .world_size = job.cluster.nodes,
                   .rank = node,
                   .exchange = job.cluster.nodes > 1,
                   .seed = job.seed,
                   .drop_last = true,
                   .epochs = job.epochs};
    request.parameters = RedoxOf(job.cluster.nodes, prefetch);
    request.parameters.erase("block_samples");
    request.blocks = MakeUniformBlocks(job.sizes.size(), kSimulatedChunk);
    auto order = Orders().Get("redox").value()->Make(request, {});
    EXPECT_TRUE(order.ok()) << order.status().ToString();
    if (!order.ok()) return {};
    while (const std::optional<Step> step = order.value()->Next()) {
      planned.reads +=
          static_cast<std::uint64_t>(std::ranges::count(step->reads, kNoNode, &BlockRead::home));
      for (const Parcel& parcel : step->parcels) planned.sent += parcel.samples.size();
    }
  }
  return planned;
}

class RedoxSimulatedTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(RedoxSimulatedTest, ReadsAndSendsWhatThePlanSaysAndDeliversEverySample) {
  const SimulatedJob job = StoredJob(GetParam());
  for (const std::int64_t prefetch : {0, 500}) {
    const EngineJobResult result = Simulate(job, prefetch);
    const Planned planned = PlannedOf(job, prefetch);
    EXPECT_EQ(result.storage_reads, planned.reads);
    const auto& fetched = result.run.fetched;
    EXPECT_EQ(fetched[static_cast<std::size_t>(From::kPeer)].samples, planned.sent);
    EXPECT_EQ(fetched[static_cast<std::size_t>(From::kStorage)].samples + planned.sent,
              job.sizes.size() * job.epochs);
    EXPECT_EQ(result.run.samples_used, job.sizes.size());
    const double bytes = static_cast<double>(planned.reads * kSimulatedChunk) * kSimulatedBytes;
    EXPECT_NEAR(result.run.seconds, bytes / kSimulatedRate, 0.02 * result.run.seconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, RedoxSimulatedTest, ::testing::Values(1, 2, 3));

TEST(RedoxSimulatedLinksTest, SamplesOfOtherNodesTakeTheTimeOfTheLink) {
  SimulatedJob job = StoredJob(3);
  const double stored = Simulate(job, 0).run.seconds;
  job.cluster.network_rate = 2e6;
  const double bytes = static_cast<double>(PlannedOf(job, 0).sent) * kSimulatedBytes;
  const double linked = Simulate(job, 0).run.seconds;
  EXPECT_GT(linked, 2 * stored);
  EXPECT_NEAR(linked, bytes / 3 / job.cluster.network_rate, 0.05 * linked);
}

TEST(RedoxSimulatedLinksTest, KeepsWhatIsResidentInTheFirstTierToo) {
  SimulatedJob job = StoredJob(2);
  job.cluster.staging_bytes = 30e6;
  RegisterPapers();
  const EngineJobOptions options{.order = "redox", .parameters = RedoxOf(2, 0)};
  EXPECT_THAT(RunEngines(job, options).status().ToString(), HasSubstr("30 MB"));
  job.cluster.tiers = {{.bytes = 400e6}};
  EXPECT_EQ(Simulate(job, 0).storage_reads, PlannedOf(job, 0).reads);
}

TEST(RedoxSimulatedLinksTest, IsNotEstimated) {
  RegisterPapers();
  const EngineJobOptions options{.order = "redox", .parameters = RedoxOf(2, 0)};
  EXPECT_THAT(RunFast(StoredJob(2), options).status().ToString(),
              HasSubstr("nodes send each other samples"));
}

}  // namespace
}  // namespace headrace
