#include "sim/job/engine_job.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/order_factory.h"
#include "plan/placement/placement.h"
#include "sim/job/fast_job.h"

namespace headrace {
namespace {

using From = SampleFetch::From;
using testing::HasSubstr;

// Sizes from 50 to 150 KB; no part of the cluster limits anything but staging.
SimulatedJob JobOf(std::uint64_t samples, std::uint32_t nodes) {
  SimulatedJob job;
  Prng random(samples, 0, RandomStream::kOrder, 0x5ea2);
  for (std::uint64_t i = 0; i < samples; ++i) {
    job.sizes.push_back(static_cast<double>(50'000 + random.Below(100'000)));
  }
  job.batch_size = 8;
  job.cluster.nodes = nodes;
  job.cluster.staging_bytes = 20e6;
  job.cluster.staging_threads = 4;
  return job;
}

Curve RateOf(double rate) { return Curve::Make({{.users = 1, .rate = rate}}).value(); }

EngineJobResult RunJob(const SimulatedJob& job, const EngineJobOptions& options = {}) {
  Result<EngineJobResult> result = RunEngines(job, options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? std::move(result).value() : EngineJobResult();
}

double BytesOf(const SimulatedJob& job) {
  return std::accumulate(job.sizes.begin(), job.sizes.end(), 0.0);
}

const FetchTotals& Fetched(const EngineJobResult& result, From from) {
  return result.run.fetched[static_cast<std::size_t>(from)];
}

TEST(EngineJobTest, StorageThatIsTheOnlyLimitTakesItsBytesOverItsRate) {
  SimulatedJob job = JobOf(800, 2);
  job.cluster.storage = RateOf(10e6);
  job.cluster.reads_share = true;
  const EngineJobResult result = RunJob(job);
  EXPECT_NEAR(result.run.seconds, BytesOf(job) / 10e6, 0.01 * result.run.seconds);
  EXPECT_NEAR(result.run.stall_seconds + result.run.barrier_seconds, result.run.seconds, 1e-3);
  EXPECT_EQ(result.run.samples_used, 800U);
  EXPECT_EQ(Fetched(result, From::kStorage).samples, 800U);
  EXPECT_NEAR(Fetched(result, From::kStorage).bytes, BytesOf(job), 1);
  EXPECT_NEAR(result.run.filled_bytes, 0, 0.001 * BytesOf(job));
}

// Where reads do not share it, four at a time are four times as fast.
TEST(EngineJobTest, EachReadOfANodeHasAllOfItsPartUnlessReadsShare) {
  SimulatedJob job = JobOf(800, 2);
  job.cluster.storage = RateOf(10e6);
  EXPECT_NEAR(RunJob(job).run.seconds, BytesOf(job) / 40e6, 0.02 * BytesOf(job) / 40e6);
}

TEST(EngineJobTest, RequestsLimitStorageThatHasBytesToSpare) {
  SimulatedJob job = JobOf(800, 1);
  job.cluster.storage = RateOf(1e9);
  job.cluster.reads_share = true;
  const EngineJobResult result = RunJob(job, {.reads_in_flight = 16, .reads_per_second = 100});
  EXPECT_NEAR(result.run.seconds, 8, 0.2);
  EXPECT_NEAR(static_cast<double>(result.storage_reads), 800, 16);  // Few are neighbours.
  const Result<EngineJobResult> fast = RunFast(job, {.reads_in_flight = 16});
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  EXPECT_EQ(fast.value().storage_reads, result.storage_reads);
}

TEST(EngineJobTest, ASampleThatIsAFileIsARequestOfItsOwn) {
  SimulatedJob job = JobOf(800, 1);
  job.cluster.reads_share = true;
  for (const std::string order : {"exact", "epoch"}) {
    for (const bool files : {false, true}) {
      const EngineJobOptions options{.order = order, .files = files};
      const EngineJobResult result = RunJob(job, options);
      const Result<EngineJobResult> fast = RunFast(job, options);
      ASSERT_TRUE(fast.ok()) << fast.status().ToString();
      EXPECT_EQ(result.storage_reads == 800, files) << order << " " << result.storage_reads;
      EXPECT_EQ(fast.value().storage_reads == 800, files) << order;
      EXPECT_NEAR(Fetched(result, From::kStorage).bytes, BytesOf(job), 1);
    }
  }
}

TEST(EngineJobTest, EachReadOfStorageWaitsForItsLatency) {
  SimulatedJob job = JobOf(800, 1);
  job.cluster.storage = RateOf(1e12);
  job.cluster.storage_latency_seconds = 0.01;
  const EngineJobResult result = RunJob(job, {.reads_in_flight = 16});
  EXPECT_NEAR(result.run.seconds, 800 * 0.01 / 16, 0.05);
  EXPECT_NEAR(Fetched(result, From::kStorage).seconds, 800 * 0.01, 1e-3);
}

// Each of four lanes has a quarter of the node's reads in flight, and so takes the time of all.
TEST(EngineJobTest, SharesOfRanksAreThoseOfTheirLanePolicy) {
  SimulatedJob job = JobOf(960, 1);
  job.cluster.storage = RateOf(1e12);
  job.cluster.staging_bytes = 1;  // a batch in use and one ahead
  job.cluster.storage_latency_seconds = 0.01;
  EngineJobOptions options{.ranks = 4, .reads_in_flight = 8};
  const EngineJobResult shared = RunJob(job, options);
  options.schedule = "fixed";  // two reads each
  const EngineJobResult fixed = RunJob(job, options);
  EXPECT_NEAR(fixed.run.seconds, 960 * 0.01 / 8, 0.1);
  EXPECT_EQ(fixed.spread_seconds.size(), fixed.run.step_seconds.size());
  EXPECT_LT(*std::ranges::max_element(fixed.spread_seconds), 1e-3);
  EXPECT_NE(fixed.run.step_seconds, shared.run.step_seconds);
  // One rank has everything, by whatever policy.
  EXPECT_TRUE(RunFast(SimulatedJob(JobOf(960, 1)), {.schedule = "fixed"}).ok());
}

// All of the second epoch is in a tier. Every rank's steps are training and waiting, for its own
// batch or for the other rank.
TEST(EngineJobTest, EachRanksTimeIsBrokenDownByStage) {
  SimulatedJob job = JobOf(64, 1);
  job.batch_size = 4;
  job.epochs = 2;
  job.cluster.staging_bytes = 1;
  job.cluster.storage = RateOf(1e12);
  job.cluster.sample_rate = 1e3;
  job.cluster.preprocess_rate = 1e6;
  job.cluster.tiers = {{.bytes = 2 * BytesOf(job), .rate = 1e9}};
  job.cluster.storage_latency_seconds = 0.01;
  const EngineJobResult result =
      RunJob(job, {.placement = "pinned", .schedule = "fixed", .ranks = 2, .reads_in_flight = 2});
  ASSERT_EQ(result.ranks.size(), 2U);
  double storage = 0;
  double preprocess = 0;
  for (const RankStages& rank : result.ranks) {
    storage += rank.storage_seconds;
    preprocess += rank.preprocess_seconds;
    EXPECT_NEAR(rank.train_seconds + rank.wait_seconds + rank.barrier_seconds, result.run.seconds,
                1e-6);
    EXPECT_GT(rank.wait_seconds, 0);
    EXPECT_GT(rank.tier_seconds, 0);
    EXPECT_EQ(rank.node_seconds, 0);
  }
  EXPECT_NEAR(storage, static_cast<double>(result.storage_reads) * 0.01, 1e-3);
  EXPECT_EQ(result.storage_reads, 64U);
  EXPECT_NEAR(preprocess, 2 * BytesOf(job) / 1e6, BytesOf(job) / 1e6 / 100);
  EXPECT_DOUBLE_EQ(result.ranks[0].train_seconds, result.ranks[1].train_seconds);
}

// A tier has half of the samples, in the second epoch more of one rank's than of the other's, as it
// happens: their steps differ by whole latencies.
TEST(EngineJobTest, TheSpreadOfAStepIsBetweenTheSlowestAndTheFastestRank) {
  SimulatedJob job;
  job.sizes.assign(64, 100'000);
  job.batch_size = 4;
  job.epochs = 2;
  job.cluster.staging_bytes = 1;
  job.cluster.storage = RateOf(1e12);
  job.cluster.sample_rate = 1e5;
  job.cluster.tiers = {{.bytes = 32 * 100'000, .rate = 1e12}};
  job.cluster.storage_latency_seconds = 0.01;
  const EngineJobResult result =
      RunJob(job, {.placement = "pinned", .schedule = "fixed", .ranks = 2, .reads_in_flight = 2});
  ASSERT_EQ(result.spread_seconds.size(), 16U);
  double spread = 0;
  for (std::size_t step = 0; step < 16; ++step) {
    // One read of each rank at a time: whole latencies.
    const double latencies = result.spread_seconds[step] / 0.01;
    EXPECT_NEAR(latencies, std::round(latencies), 0.02) << step;
    if (step < 8) {
      EXPECT_NEAR(latencies, 0, 0.02) << step;
    } else {
      spread += latencies;
    }
  }
  EXPECT_GT(spread, 3);
}

TEST(EngineJobTest, PreprocessingIsDividedAmongTheThreadsOfStaging) {
  SimulatedJob job = JobOf(800, 1);
  job.cluster.preprocess_rate = 5e6;
  const EngineJobResult result = RunJob(job);
  EXPECT_NEAR(result.run.seconds, BytesOf(job) / 20e6, 0.02 * result.run.seconds);
  EXPECT_GT(result.stall_ns[static_cast<std::size_t>(StallCause::kDecode)], 0);
}

// The bound, planned without an engine: the slowest rank of each step.
double LeastSeconds(const SimulatedJob& job, const std::string& order, std::uint32_t ranks) {
  OrderRequest request{.job = {.sample_count = job.sizes.size(),
                               .batch_size = job.batch_size,
                               .world_size = ranks,
                               .ranks = ranks,
                               .seed = job.seed,
                               .drop_last = true,
                               .epochs = job.epochs}};
  auto costs = std::make_shared<std::vector<std::uint32_t>>();
  for (const double size : job.sizes) costs->push_back(static_cast<std::uint32_t>(size));
  request.costs = costs;
  auto plan = Orders().Get(order).value()->Make(request, {}).value();
  double bytes = 0;
  while (const auto step = plan->Next()) {
    std::vector<double> of_rank(ranks);
    for (const Delivery& delivery : step->deliveries) {
      of_rank[delivery.rank] += job.sizes[Raw(delivery.sample)];
    }
    bytes += *std::ranges::max_element(of_rank);
  }
  return bytes / job.cluster.compute_rate;
}

TEST(EngineJobTest, WithoutAStallAJobTakesTheBoundOfItsOrder) {
  SimulatedJob job = JobOf(2'000, 4);
  job.epochs = 2;
  job.cluster.compute_rate = 1e6;
  for (const std::string order : {"exact", "batch"}) {
    const EngineJobResult result = RunJob(job, {.order = order});
    EXPECT_NEAR(result.least_seconds, LeastSeconds(job, order, 4), 1e-6) << order;
    EXPECT_NEAR(result.run.seconds, result.least_seconds, 1e-3) << order;
    EXPECT_EQ(result.run.step_seconds.size(), 124U);
    EXPECT_EQ(result.run.epoch_seconds.size(), 2U);
  }
  EXPECT_LT(RunJob(job, {.order = "batch"}).run.seconds, 0.99 * RunJob(job).run.seconds);
}

TEST(EngineJobTest, RanksOfOneNodeShareItsRateOfComputing) {
  SimulatedJob job = JobOf(2'000, 1);
  job.cluster.compute_rate = 4e6;
  const EngineJobResult result = RunJob(job, {.ranks = 4});
  SimulatedJob alone = job;
  alone.cluster.compute_rate = 1e6;
  EXPECT_NEAR(result.least_seconds, LeastSeconds(alone, "exact", 4), 1e-6);
  EXPECT_NEAR(result.run.seconds, result.least_seconds, 1e-2);
}

TEST(EngineJobTest, WhatATierHoldsIsReadFromStorageOnce) {
  SimulatedJob job = JobOf(800, 1);
  job.epochs = 3;
  job.cluster.storage = RateOf(10e6);
  job.cluster.reads_share = true;
  job.cluster.tiers = {{.bytes = 2 * BytesOf(job), .threads = 1, .rate = 1e9}};
  const EngineJobResult result = RunJob(job);
  EXPECT_NEAR(Fetched(result, From::kStorage).bytes + result.run.filled_bytes, BytesOf(job), 1e5);
  EXPECT_EQ(Fetched(result, From::kStorage).samples + Fetched(result, From::kTier).samples, 2400U);
  EXPECT_NEAR(result.run.epoch_seconds[0], BytesOf(job) / 10e6, 0.3);
  EXPECT_LT(result.run.epoch_seconds[2], 0.2);
}

TEST(EngineJobTest, NodesReadEachSampleOnceBetweenThem) {
  SimulatedJob job = JobOf(800, 4);
  job.epochs = 4;
  job.cluster.compute_rate = 5e6;
  job.cluster.storage = RateOf(20e6);
  job.cluster.reads_share = true;
  job.cluster.network_rate = 1e9;
  job.cluster.tiers = {{.bytes = BytesOf(job) / 2, .threads = 1, .rate = 1e9}};
  const EngineJobResult result = RunJob(job);
  EXPECT_GT(Fetched(result, From::kPeer).samples, 0U);
  EXPECT_LT(Fetched(result, From::kStorage).bytes + result.run.filled_bytes, 1.3 * BytesOf(job));
  EXPECT_LT(result.run.epoch_seconds[3], 1.01 * result.least_seconds / 4);
}

// What must follow from any job.
void CheckSums(const SimulatedJob& job, const EngineJobResult& result, std::uint32_t ranks,
               bool exact) {
  const SimulatedRun& run = result.run;
  EXPECT_GE(run.seconds, result.least_seconds * (1 - 1e-6));
  EXPECT_NEAR(run.compute_seconds + run.stall_seconds + run.barrier_seconds, run.seconds,
              1e-5 * run.seconds);
  EXPECT_NEAR(std::accumulate(run.step_seconds.begin(), run.step_seconds.end(), 0.0), run.seconds,
              1e-6 * run.seconds);
  EXPECT_NEAR(std::accumulate(run.epoch_seconds.begin(), run.epoch_seconds.end(), 0.0), run.seconds,
              1e-6 * run.seconds);
  std::uint64_t samples = 0;
  for (const FetchTotals& totals : run.fetched) samples += totals.samples;
  const std::uint64_t global = job.batch_size * job.cluster.nodes * ranks;
  EXPECT_EQ(samples, job.sizes.size() / global * global * job.epochs);
  if (!exact || job.sizes.size() % global != 0) return;
  EXPECT_EQ(run.samples_used, job.sizes.size());
}

// A job, and how its nodes load, drawn.
struct Drawn {
  SimulatedJob job;
  EngineJobOptions options;
};

Drawn DrawJob(std::uint64_t seed) {
  Prng random(seed, 0, RandomStream::kOrder, 0x5ea3);
  Drawn drawn{.job =
                  JobOf(200 + random.Below(600), 1 + static_cast<std::uint32_t>(random.Below(3)))};
  SimulatedJob& job = drawn.job;
  job.seed = seed;
  job.epochs = 1 + random.Below(3);
  job.batch_size = 1 + random.Below(12);
  const auto rate = [&random] { return 1e6 * static_cast<double>(1 + random.Below(40)); };
  job.cluster.compute_rate = rate();
  job.cluster.preprocess_rate = rate();
  job.cluster.storage = RateOf(rate());
  job.cluster.reads_share = random.Below(2) == 0;
  job.cluster.network_rate = rate();
  for (std::uint64_t tiers = random.Below(3); tiers > 0; --tiers) {
    job.cluster.tiers.push_back(
        {.bytes = BytesOf(job) * static_cast<double>(random.Below(100)) / 100,
         .threads = 1,
         .rate = rate()});
  }
  job.cluster.staging_bytes = 1e6 * static_cast<double>(10 + random.Below(60));
  EngineJobOptions& options = drawn.options;
  options.order = std::vector{"exact", "batch", "epoch"}[random.Below(3)];
  options.ranks = 1 + static_cast<std::uint32_t>(random.Below(2));
  if (options.order == "epoch") {  // No pool feeds two nodes.
    const std::int64_t pools = std::int64_t{job.cluster.nodes} * options.ranks;
    options.parameters = {{"block_samples", std::int64_t{2}}, {"pools", pools}};
  }
  const auto placements = Placements().rows();
  options.placement = placements[random.Below(placements.size())]->name();
  return drawn;
}

constexpr std::uint64_t kSeeds = 60;

TEST(EngineJobTest, TimesAndSamplesAddUpInAnyJob) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [job, options] = DrawJob(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + options.order + ", " + options.placement);
    const EngineJobResult result = RunJob(job, options);
    CheckSums(job, result, options.ranks, options.order == "exact");
    EXPECT_EQ(RunJob(job, options).run.step_seconds, result.run.step_seconds)
        << "not the same again";
    if (HasFailure()) return;
  }
}

// Drawn jobs have tiers and links slower than storage, too, where it is least exact.
TEST(FastJobTest, ComesNearTheEngines) {
  std::vector<double> errors;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [job, options] = DrawJob(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + options.order + ", " + options.placement);
    const EngineJobResult result = RunJob(job, options);
    const Result<EngineJobResult> fast = RunFast(job, options);
    ASSERT_TRUE(fast.ok()) << fast.status().ToString();
    CheckSums(job, fast.value(), options.ranks, options.order == "exact");
    EXPECT_NEAR(fast.value().least_seconds, result.least_seconds, 1e-5 * result.least_seconds);
    EXPECT_EQ(fast.value().first_read_seconds, result.first_read_seconds);
    EXPECT_GT(result.first_read_seconds, 0);
    EXPECT_GE(result.run.seconds, result.first_read_seconds);
    const double error = fast.value().run.seconds / result.run.seconds - 1;
    errors.push_back(std::abs(error));
    EXPECT_LT(std::abs(error), 0.5) << result.run.seconds << " and " << fast.value().run.seconds;
    if (HasFailure()) return;
  }
  std::ranges::sort(errors);
  const double median = errors[errors.size() / 2];
  const double p90 = errors[errors.size() * 9 / 10];
  std::printf("of %zu jobs: median %.1f %%, nine of ten %.1f %%, all %.1f %%\n", errors.size(),
              100 * median, 100 * p90, 100 * errors.back());
  EXPECT_LT(median, 0.03);
  EXPECT_LT(p90, 0.3);
}

TEST(EngineJobTest, AStagingThatIsTooSmallHasABatchInUseAndOneAhead) {
  SimulatedJob job = JobOf(800, 1);
  job.cluster.compute_rate = 5e6;
  job.cluster.storage = RateOf(20e6);
  job.cluster.reads_share = true;
  job.cluster.staging_bytes = 1;
  const EngineJobResult result = RunJob(job);
  EXPECT_LT(result.run.seconds, 1.02 * result.least_seconds);
  const Result<EngineJobResult> fast = RunFast(job, {});
  ASSERT_TRUE(fast.ok());
  EXPECT_NEAR(fast.value().run.seconds, result.run.seconds, 0.02 * result.run.seconds);
}

TEST(EngineJobTest, SeveralRanksDivideWhatAnOrderKeepsResident) {
  SimulatedJob job = JobOf(8'000, 1);
  job.cluster.staging_bytes = 100e6;
  const EngineJobOptions options{
      .order = "epoch", .parameters = {{"block_samples", std::int64_t{2}}}, .ranks = 8};
  EXPECT_EQ(RunJob(job, options).run.samples_used, 8'000U);
}

TEST(EngineJobTest, SamplesOfNoBytesAndTiersOfNoCapacityAreAllowed) {
  for (const std::string order : {"exact", "batch", "epoch"}) {
    SimulatedJob job = JobOf(400, 2);
    job.sizes.assign(400, 0);
    job.cluster.sample_rate = 100;
    job.cluster.tiers = {{.bytes = 0}};
    const EngineJobResult result = RunJob(job, {.order = order});
    EXPECT_NEAR(result.run.seconds, 2, 1e-6) << order;
    EXPECT_NEAR(RunFast(job, {.order = order}).value().run.seconds, 2, 1e-6) << order;
  }
}

TEST(EngineJobTest, AJobThatTakesTooLongEndsWithAnError) {
  for (const double rate : {1e-3, 1e-9}) {
    SimulatedJob job = JobOf(800, 2);
    job.cluster.compute_rate = rate;
    EXPECT_THAT(RunEngines(job, {}).status().ToString(), HasSubstr("more than 73 years"));
    job = JobOf(800, 2);
    job.cluster.storage = RateOf(rate);
    EXPECT_THAT(RunEngines(job, {}).status().ToString(), HasSubstr("more than 73 years"));
    job = JobOf(800, 2);
    job.epochs = 2;
    job.cluster.tiers = {{.bytes = BytesOf(job), .rate = 1e-300}};
    EXPECT_THAT(RunEngines(job, {}).status().ToString(), HasSubstr("more than 73 years"));
    job.cluster.tiers[0].rate = 1e9;
    job.cluster.network_rate = 1e-12;
    EXPECT_THAT(RunEngines(job, {}).status().ToString(), HasSubstr("more than 73 years"));
  }
}

TEST(EngineJobTest, MayBeEndedAtAnyTime) {
  SimulatedJob job = JobOf(800, 2);
  job.cluster.tiers = {{.bytes = BytesOf(job), .rate = 1e9}};
  for (const char* order : {"epoch", "exact"}) {
    for (const auto run : {&RunEngines, &RunFast}) {
      int asked = 0;
      const auto count = [&asked] { return ++asked > 0; };
      ASSERT_TRUE(run(job, {.order = order}, count).ok());
      EXPECT_GT(asked, 52);  // Each step.
      for (int part = 0; part < 12; ++part) {
        int left = part < 6 ? part : asked * (part - 5) / 7;
        const auto keep_going = [&left] { return --left >= 0; };
        EXPECT_EQ(run(job, {.order = order}, keep_going).status().code(), StatusCode::kCancelled);
      }
    }
  }
}

TEST(EngineJobTest, WhatCannotBeSimulatedIsRefused) {
  SimulatedJob job = JobOf(800, 2);
  const auto error = [&job](const EngineJobOptions& options) {
    return RunEngines(job, options).status().ToString();
  };
  EXPECT_THAT(error({.order = "sorted"}), HasSubstr("sorted"));
  EXPECT_THAT(error({.ranks = 0}), HasSubstr("0 ranks a node"));
  EXPECT_THAT(error({.reads_per_second = 0}), HasSubstr("0 reads a second"));
  EXPECT_THAT(error({.reads_per_second = 9}), HasSubstr("reads do not share storage"));
  EXPECT_THAT(error({.schedule = "best"}),
              HasSubstr("schedule: got 'best', must be one of 'shared"));
  EXPECT_THAT(RunFast(job, {.schedule = "fixed", .ranks = 2}).status().ToString(),
              HasSubstr("simulate each read"));
  job.cluster.storage_latency_seconds = 0.01;
  EXPECT_THAT(RunFast(job, {}).status().ToString(), HasSubstr("simulate each read"));
  job.cluster.storage_latency_seconds = -1;
  EXPECT_THAT(error({}), HasSubstr("storage_latency_seconds is -1, must be a number of at least"));
  job.cluster.storage_latency_seconds = 0;
  job.cluster.staging_bytes = 1e6;
  EXPECT_THAT(error({.order = "epoch", .parameters = {{"pool_bytes", std::int64_t{40'000'000}}}}),
              HasSubstr("resident, and staging has 1 MB"));
  const Result<EngineJobResult> ended = RunEngines(job, {}, [] { return false; });
  EXPECT_EQ(ended.status().code(), StatusCode::kCancelled);
  job.cluster.tiers = {{.bytes = 1e6}};
  EXPECT_THAT(error({.placement = "anywhere"}), HasSubstr("anywhere"));
}

}  // namespace
}  // namespace headrace
