// Where Lobster gains: ranks that train in step on a node, random hits of a tier in memory, storage
// whose reads take as long however many there are, one batch ahead. In virtual time.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "headrace/papers.h"
#include "sim/job/engine_job.h"

namespace headrace {
namespace {

constexpr std::uint32_t kNodeRanks = 8;
constexpr std::uint64_t kRankBatch = 64;
constexpr std::uint64_t kEpochSteps = 40;
constexpr double kBytesOfSample = 100'000;
constexpr double kReadLatency = 0.01;
constexpr std::uint32_t kRankReads = 6;  // of a rank, beside 2 threads that preprocess

// The last of three epochs: in the first one the tier fills.
struct Epoch {
  double seconds = 0;
  double imbalanced = 0;  // share of steps in which ranks differ by more than a tenth of training
};

// Loading by equal shares takes 1.1 times as long as training, in the mean.
Epoch Train(const std::string& schedule, double hits, std::uint64_t seed) {
  SimulatedJob job;
  job.sizes.assign(kNodeRanks * kRankBatch * kEpochSteps, kBytesOfSample);
  job.batch_size = kRankBatch;
  job.epochs = 3;
  job.seed = seed;
  const double missed = kRankBatch * (1 - hits);
  const double train = missed * kReadLatency / kRankReads / 1.1;
  job.cluster.sample_rate = kNodeRanks * kRankBatch / train;
  job.cluster.preprocess_rate = kBytesOfSample / 0.00025;
  job.cluster.staging_bytes =
      kBytesOfSample * 2 * kNodeRanks * kRankBatch;  // a batch in use, one ahead
  job.cluster.staging_threads = 2 * kNodeRanks;
  job.cluster.tiers = {
      {.bytes = hits * static_cast<double>(job.sizes.size()) * kBytesOfSample, .rate = 2e9}};
  job.cluster.storage = Curve::Make({{.users = 1, .rate = 2e9}}).value();
  job.cluster.storage_latency_seconds = kReadLatency;
  const EngineJobOptions options{.placement = "pinned",
                                 .schedule = schedule,
                                 .ranks = kNodeRanks,
                                 .reads_in_flight = kNodeRanks * kRankReads};
  const Result<EngineJobResult> result = RunEngines(job, options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  if (!result.ok()) return {};
  const std::vector<double>& spread = result.value().spread_seconds;
  const auto last = spread.end() - kEpochSteps;
  return {.seconds = result.value().run.epoch_seconds[2],
          .imbalanced = static_cast<double>(std::count_if(
                            last, spread.end(), [&](double s) { return s > 0.1 * train; })) /
                        kEpochSteps};
}

class LobsterGainTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterPapers(); }
};

TEST_F(LobsterGainTest, RanksThatMissByChanceWaitLessThanWithEqualShares) {
  for (const double hits : {0.1, 0.4, 0.75}) {
    for (const std::uint64_t seed : {1U, 2U}) {
      const Epoch fixed = Train("fixed", hits, seed);
      const Epoch lobster = Train("lobster", hits, seed);
      std::printf("hits %.2f: fixed %.3f s, imbalanced %.0f %%; lobster %.3f s, %.0f %%\n", hits,
                  fixed.seconds, 100 * fixed.imbalanced, lobster.seconds, 100 * lobster.imbalanced);
      EXPECT_GT(fixed.imbalanced, 0.4) << hits;
      EXPECT_LT(lobster.imbalanced, fixed.imbalanced) << hits;
      EXPECT_GT(fixed.seconds, 1.1 * lobster.seconds) << hits;
    }
  }
}

}  // namespace
}  // namespace headrace
