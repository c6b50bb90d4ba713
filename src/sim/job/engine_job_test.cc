#include "sim/job/engine_job.h"

#include <chrono>
#include <cstdio>
#include <string>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

PublishedJob JobOf(std::uint64_t samples, double rate) {
  PublishedJob job;
  Prng random(1, 0, RandomStream::kOrder, 0x5ea2);
  for (std::uint64_t i = 0; i < samples; ++i) {
    job.sizes.push_back(static_cast<double>(50'000 + random.Below(100'000)));
  }
  job.batch_size = 32;
  job.cluster.nodes = 4;
  job.cluster.compute_rate = 64e6;
  job.cluster.preprocess_rate = 200e6;
  job.cluster.storage = Curve::Make({{1, rate / 4}, {4, rate}}).value();
  job.cluster.network_rate = 1e10;
  job.cluster.staging_bytes = 200e6;
  job.cluster.staging_threads = 8;
  job.cluster.staging_rate = 1e11;
  return job;
}

TEST(EngineJobTest, Probe) {
  for (const std::string order : {"exact", "batch", "epoch"}) {
    for (const bool tiers : {false, true}) {
      PublishedJob job = JobOf(50'000, 1540e6);
      job.epochs = 2;
      if (tiers) job.cluster.tiers = {{.bytes = 2e9, .threads = 4, .rate = 85e9}};
      const auto begin = std::chrono::steady_clock::now();
      const Result<EngineJobResult> run = RunEngines(job, {.order = order});
      ASSERT_TRUE(run.ok()) << run.status().ToString();
      const PublishedResult& of = run.value().run;
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      std::printf("%s tiers %d: %.3f s, least %.3f, stall %.3f barrier %.3f, used %lu, tier %.3g peer %.3g "
                  "storage %.3g filled %.3g; %.0f samples/s\n",
                  order.c_str(), tiers, of.seconds, run.value().least_seconds, of.stall_seconds,
                  of.barrier_seconds, of.samples_used, of.fetched[0].bytes, of.fetched[1].bytes,
                  of.fetched[2].bytes, of.filled_bytes, 100'000 / s);
    }
  }
}

}  // namespace
}  // namespace headrace
