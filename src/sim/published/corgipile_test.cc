#include "sim/published/corgipile.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "sim/published/run.h"

namespace headrace {
namespace {

// Blocks of 10 samples, buffers of 100.
SimulatedJob CorgiJob(std::uint32_t nodes) {
  SimulatedJob job{.sizes = std::vector<double>(2050, 1e6), .batch_size = 7};
  job.epochs = 3;
  job.seed = 8;
  job.cluster.nodes = nodes;
  job.cluster.storage = Curve::Make({{1, 10e6}}).value();
  job.cluster.staging_bytes = 100e6;
  job.cluster.staging_threads = 2;
  return job;
}

Streams StreamsOf(const SimulatedJob& job) {
  Streams streams = Streams::Make(job).value();
  const PublishedPolicyRow& row = *FindPublishedPolicy("corgipile");
  EXPECT_TRUE(row.make({row.name, job, streams})->Begin(streams).ok());
  return streams;
}

TEST(CorgiPileTest, EachEpochHasEverySampleOnceButThoseLeftOver) {
  for (const std::uint32_t nodes : {1U, 3U}) {
    const SimulatedJob job = CorgiJob(nodes);
    const Streams streams = StreamsOf(job);
    const std::uint64_t of_node = streams.steps_per_epoch() * job.batch_size;
    std::set<std::vector<std::uint32_t>> epochs;
    for (std::uint64_t epoch = 0; epoch < job.epochs; ++epoch) {
      std::vector<std::uint32_t> samples;
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const auto own = streams.Of(node).subspan(epoch * of_node, of_node);
        samples.insert(samples.end(), own.begin(), own.end());
      }
      epochs.insert(samples);
      EXPECT_EQ(std::set(samples.begin(), samples.end()).size(), samples.size());
      EXPECT_EQ(samples.size(), 2050 / (7 * nodes) * (7 * nodes));
    }
    EXPECT_EQ(epochs.size(), job.epochs);
  }
}

TEST(CorgiPileTest, ABufferHasWholeBlocksInAnyOrder) {
  const SimulatedJob job = CorgiJob(1);
  const Streams streams = StreamsOf(job);
  std::set<std::vector<std::uint32_t>> shuffles;  // by place in the block's buffer
  for (std::uint64_t first = 0; first + 100 <= 2000; first += 100) {
    const auto buffer = streams.Of(0).subspan(first, 100);
    std::set<std::uint32_t> blocks;
    for (const std::uint32_t sample : buffer) blocks.insert(sample / 10);
    // Ten of 10, or one more where the last block, of 10 too, lies across two buffers.
    EXPECT_LE(blocks.size(), 11U);
    EXPECT_FALSE(std::ranges::is_sorted(buffer));
    std::vector<std::uint32_t> places;
    for (const std::uint32_t sample : buffer) places.push_back(sample % 10);
    shuffles.insert(places);
  }
  EXPECT_EQ(shuffles.size(), 20U);
}

TEST(CorgiPileTest, ABlockIsOneRead) {
  SimulatedJob job = CorgiJob(1);
  const double without = RunPublished(*FindPublishedPolicy("corgipile"), job).value().seconds;
  job.cluster.storage_latency_seconds = 10;
  const double with = RunPublished(*FindPublishedPolicy("corgipile"), job).value().seconds;
  const auto rows = static_cast<double>(StreamsOf(job).Of(0).size());
  EXPECT_NEAR(with - without, rows / 10 * 10 / 2, 1e-6);  // a latency a block, two at a time
}

TEST(CorgiPileTest, ASampleThatIsLargerThanABlockIsOne) {
  SimulatedJob job = CorgiJob(2);
  std::ranges::fill(job.sizes, 1e9);
  const Streams streams = StreamsOf(job);
  EXPECT_EQ(std::set(streams.Of(0).begin(), streams.Of(0).begin() + 1022).size(), 1022U);
}

}  // namespace
}  // namespace headrace
