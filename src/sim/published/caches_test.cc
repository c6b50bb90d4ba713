#include "sim/published/caches.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sim/published/run.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using Stream = std::vector<std::uint32_t>;
using Tiers = std::vector<std::optional<std::size_t>>;  // of each use; std::nullopt: storage

constexpr std::optional<std::size_t> kRead = std::nullopt;

// A run's policy on nodes that use the samples of `streams`.
class CacheCase {
 public:
  CacheCase(std::vector<double> sizes, const std::vector<double>& tier_bytes,
            std::vector<Stream> streams)
      : job_(JobOf(std::move(sizes), tier_bytes, streams)), streams_(Streams::Make(job_).value()) {
    for (std::uint32_t node = 0; node < streams.size(); ++node) {
      streams_.Replace(node, std::move(streams[node]));
    }
  }

  std::unique_ptr<PublishedPolicy> Make(std::string_view policy) const {
    return FindPublishedPolicy(policy)->make({policy, job_, streams_});
  }

  // Where the only node gets its samples from.
  [[nodiscard]] Tiers Run(std::string_view name) const {
    const std::unique_ptr<PublishedPolicy> policy = Make(name);
    Tiers tiers;
    for (std::uint64_t place = 0; place < streams_.Of(0).size(); ++place) {
      const std::uint32_t sample = streams_.Of(0)[place];
      const SampleFetch fetch = policy->FetchOf(0, place, sample, 0);
      const bool is_hit = fetch.from == SampleFetch::From::kTier;
      tiers.push_back(is_hit ? std::optional(fetch.tier) : kRead);
      if (!is_hit) policy->OnStaged(0, sample, 0);
    }
    return tiers;
  }

 private:
  // An epoch is one step; streams have whole epochs.
  static SimulatedJob JobOf(std::vector<double> sizes, const std::vector<double>& tier_bytes,
                            const std::vector<Stream>& streams) {
    SimulatedJob job{.sizes = std::move(sizes)};
    job.cluster.nodes = static_cast<std::uint32_t>(streams.size());
    job.batch_size = job.sizes.size() / streams.size();
    job.epochs = streams[0].size() / job.batch_size;
    for (const double bytes : tier_bytes) job.cluster.tiers.push_back({.bytes = bytes});
    return job;
  }

  SimulatedJob job_;
  Streams streams_;
};

TEST(PlaceSetTest, HasTheFirstAndTheLast) {
  Prng random(1, 0, RandomStream::kPack);
  for (const std::uint64_t count : {1U, 63U, 64U, 65U, 4096U, 4097U, 300'000U}) {
    PlaceSet places(count);
    std::set<std::uint64_t> expected;
    EXPECT_TRUE(places.empty());
    for (int round = 0; round < 2000; ++round) {
      const std::uint64_t place = random.Below(count);
      if (random.Below(2) == 0) {
        places.Insert(place);
        expected.insert(place);
      } else if (!expected.empty()) {
        const std::uint64_t end = random.Below(2) == 0 ? *expected.begin() : *expected.rbegin();
        places.Erase(end);
        expected.erase(end);
      }
      ASSERT_EQ(places.empty(), expected.empty());
      ASSERT_EQ(places.Has(place), expected.contains(place));
      if (expected.empty()) continue;
      ASSERT_EQ(places.First(), *expected.begin());
      ASSERT_EQ(places.Last(), *expected.rbegin());
    }
  }
}

TEST(CachesTest, LruEvictsTheLeastRecentlyUsed) {
  const CacheCase one({1, 1, 1}, {2}, {{0, 1, 0, 2, 1, 0}});
  EXPECT_THAT(one.Run("lru"), ElementsAre(kRead, kRead, 0, kRead, kRead, kRead));
  // Sample 0 moves to the second tier, back, and to it again.
  const CacheCase two({1, 1, 1}, {1, 1}, {{0, 1, 0, 2, 0, 1}});
  EXPECT_THAT(two.Run("lru"), ElementsAre(kRead, kRead, 1, kRead, 1, kRead));
}

TEST(CachesTest, BeladyEvictsWhatIsUsedLast) {
  const CacheCase one({1, 1, 1}, {2}, {{0, 1, 2, 0, 1, 2}});
  EXPECT_THAT(one.Run("belady"), ElementsAre(kRead, kRead, kRead, 0, 0, kRead));
  EXPECT_THAT(one.Run("lru"), ElementsAre(kRead, kRead, kRead, kRead, kRead, kRead));
  // The first tier has what is used next: 2 moves down when it comes, 1 when 0 is used at last.
  const CacheCase two({1, 1, 1}, {2, 1}, {{0, 1, 2, 0, 1, 2}});
  EXPECT_THAT(two.Run("belady"), ElementsAre(kRead, kRead, kRead, 0, 0, 1));
}

TEST(CachesTest, WhatIsLargerThanATierSkipsIt) {
  const CacheCase jobs({1, 5, 9}, {4, 6}, {{0, 1, 2, 0, 1, 2}});
  for (const std::string_view policy : {"lru", "belady", "coordl"}) {
    EXPECT_THAT(jobs.Run(policy), ElementsAre(kRead, kRead, kRead, 0, 1, kRead)) << policy;
  }
}

TEST(CachesTest, CoordlKeepsWhatItReadFirst) {
  const CacheCase one({1, 1, 1, 1}, {1, 2}, {{0, 1, 2, 3, 3, 2, 1, 0}});
  EXPECT_THAT(one.Run("coordl"), ElementsAre(kRead, kRead, kRead, kRead, kRead, 1, 1, 0));
}

TEST(CachesTest, CoordlTakesFromANodeWhatItHasByThen) {
  const CacheCase two({1, 1, 1, 1}, {1}, {{0, 1, 2, 3}, {2, 3, 0, 1}});
  const std::unique_ptr<PublishedPolicy> policy = two.Make("coordl");
  const auto from = [&](std::uint32_t node, std::uint32_t sample, double begin) {
    return policy->FetchOf(node, 0, sample, begin).from;
  };
  EXPECT_EQ(from(0, 0, 0), SampleFetch::From::kStorage);
  policy->OnStaged(0, 0, 5);
  EXPECT_EQ(from(1, 0, 4), SampleFetch::From::kStorage);
  policy->OnStaged(1, 0, 6);  // Node 0 has it: node 1 keeps room.
  EXPECT_EQ(from(0, 0, 5), SampleFetch::From::kTier);
  EXPECT_EQ(from(1, 0, 5), SampleFetch::From::kPeer);
  policy->OnStaged(1, 2, 7);
  EXPECT_EQ(from(1, 2, 7), SampleFetch::From::kTier);
  policy->OnStaged(0, 1, 8);  // It has no room.
  EXPECT_EQ(from(0, 1, 9), SampleFetch::From::kStorage);
}

// A node's tiers, the obvious way: lists of (sample, place by which one is evicted).
class SlowTiers {
 public:
  SlowTiers(const std::vector<double>& sizes, const std::vector<double>& tier_bytes)
      : sizes_(sizes), tier_bytes_(tier_bytes), tiers_(tier_bytes.size()) {}

  // Takes the sample out. Returns its tier.
  std::optional<std::size_t> Take(std::uint32_t sample) {
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      for (auto entry = tiers_[tier].begin(); entry != tiers_[tier].end(); ++entry) {
        if (entry->first != sample) continue;
        tiers_[tier].erase(entry);
        return tier;
      }
    }
    return std::nullopt;
  }

  void Keep(std::uint32_t sample, std::uint64_t key, bool evicts_least, std::size_t tier = 0) {
    while (tier < tiers_.size() && sizes_[sample] > tier_bytes_[tier]) ++tier;
    if (tier == tiers_.size()) return;
    tiers_[tier].emplace_back(sample, key);
    while (Bytes(tier) > tier_bytes_[tier]) {
      const auto by_key = [&](const auto& one, const auto& other) {
        return evicts_least ? one.second < other.second : one.second > other.second;
      };
      const auto out = std::ranges::min_element(tiers_[tier], by_key);
      const auto [moved, moved_key] = *out;
      tiers_[tier].erase(out);
      Keep(moved, moved_key, evicts_least, tier + 1);
    }
  }

 private:
  [[nodiscard]] double Bytes(std::size_t tier) const {
    double bytes = 0;
    for (const auto& [sample, key] : tiers_[tier]) bytes += sizes_[sample];
    return bytes;
  }

  const std::vector<double>& sizes_;
  const std::vector<double>& tier_bytes_;
  std::vector<std::list<std::pair<std::uint32_t, std::uint64_t>>> tiers_;
};

Tiers SlowRun(bool is_lru, const Stream& stream, const std::vector<double>& sizes,
              const std::vector<double>& tier_bytes) {
  SlowTiers cache(sizes, tier_bytes);
  Tiers tiers;
  for (std::size_t place = 0; place < stream.size(); ++place) {
    tiers.push_back(cache.Take(stream[place]));
    if (is_lru) {
      cache.Keep(stream[place], place, true);
      continue;
    }
    const auto next = std::find(stream.begin() + static_cast<std::ptrdiff_t>(place) + 1,
                                stream.end(), stream[place]);
    if (next == stream.end()) continue;
    cache.Keep(stream[place], static_cast<std::uint64_t>(next - stream.begin()), false);
  }
  return tiers;
}

// The fewest reads of storage that any choice of what to keep leads to, all samples being of one
// size: by all sets of samples that a cache may have.
std::size_t FewestReads(const Stream& stream, std::uint32_t samples, int cached) {
  constexpr std::size_t kNotPossible = 1U << 20U;
  std::vector<std::size_t> reads(1U << samples, kNotPossible);  // by set
  reads[0] = 0;
  for (const std::uint32_t sample : stream) {
    std::vector<std::size_t> after(reads.size(), kNotPossible);
    for (std::uint32_t set = 0; set < reads.size(); ++set) {
      if (reads[set] == kNotPossible) continue;
      const std::uint32_t all = set | 1U << sample;
      const std::size_t read = reads[set] + static_cast<std::size_t>(all != set);
      for (std::uint32_t kept = 0; kept < reads.size(); ++kept) {
        if ((kept & ~all) != 0 || std::popcount(kept) > cached) continue;
        after[kept] = std::min(after[kept], read);
      }
    }
    reads = std::move(after);
  }
  return *std::ranges::min_element(reads);
}

class AnyStreamTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  AnyStreamTest() : random_(GetParam(), 2, RandomStream::kPack) {}

  std::uint64_t Whole(std::uint64_t least, std::uint64_t most) {
    return least + random_.Below(most - least + 1);
  }
  Stream Draw(std::uint32_t samples, std::size_t epochs) {
    Stream stream(samples * epochs);
    for (std::uint32_t& sample : stream)
      sample = static_cast<std::uint32_t>(random_.Below(samples));
    return stream;
  }

  Prng random_;
};

TEST_P(AnyStreamTest, CachesAreAsInTheSlowModel) {
  const auto samples = static_cast<std::uint32_t>(Whole(1, 40));
  std::vector<double> sizes(samples);
  for (double& size : sizes) size = static_cast<double>(Whole(0, 9));
  std::vector<double> tier_bytes(Whole(0, 3));
  for (double& bytes : tier_bytes) bytes = static_cast<double>(Whole(0, 60));
  const Stream stream = Draw(samples, 6);
  const CacheCase one(sizes, tier_bytes, {stream});
  EXPECT_EQ(one.Run("lru"), SlowRun(true, stream, sizes, tier_bytes));
  EXPECT_EQ(one.Run("belady"), SlowRun(false, stream, sizes, tier_bytes));
}

TEST_P(AnyStreamTest, NoCacheReadsLessThanBeladys) {
  const auto samples = static_cast<std::uint32_t>(Whole(2, 6));
  const int cached = static_cast<int>(Whole(1, 4));
  const Stream stream = Draw(samples, 4);
  const std::vector<double> sizes(samples, 1);
  // In one tier, or in several that together have as much.
  for (const bool is_divided : {false, true}) {
    const std::vector<double> tier_bytes =
        is_divided ? std::vector<double>(static_cast<std::size_t>(cached), 1)
                   : std::vector<double>{static_cast<double>(cached)};
    const CacheCase one(sizes, tier_bytes, {stream});
    const auto reads = [&](std::string_view policy) {
      return static_cast<std::size_t>(std::ranges::count(one.Run(policy), kRead));
    };
    EXPECT_EQ(reads("belady"), FewestReads(stream, samples, cached));
    EXPECT_GE(reads("lru"), reads("belady"));
    EXPECT_GE(reads("coordl"), reads("belady"));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyStreamTest, ::testing::Range<std::uint64_t>(0, 60));

SimulatedJob CacheJob(std::uint32_t nodes, double tier_bytes) {
  SimulatedJob job{.sizes = std::vector<double>(1200, 10), .batch_size = 5, .epochs = 4};
  job.cluster = {.nodes = nodes,
                 .compute_rate = 20,
                 .preprocess_rate = 100,
                 .storage = Curve::Make({{1, 30}, {4, 40}}).value(),
                 .network_rate = 200,
                 .staging_bytes = 100,
                 .tiers = {{.bytes = tier_bytes, .rate = 100}}};
  return job;
}

double BytesFrom(const SimulatedRun& result, SampleFetch::From from) {
  return result.fetched[static_cast<std::size_t>(from)].bytes;
}

TEST(CachesTest, WithoutTiersCachesTakeAsLongAsStaging) {
  SimulatedJob job = CacheJob(4, 0);
  job.cluster.tiers.clear();
  const SimulatedRun staging = RunPublished(*FindPublishedPolicy("staging"), job).value();
  for (const std::string_view policy : {"lru", "belady", "coordl"}) {
    const SimulatedRun cached = RunPublished(*FindPublishedPolicy(policy), job).value();
    EXPECT_EQ(cached.step_seconds, staging.step_seconds) << policy;
  }
}

// Where each epoch uses each sample once, no cache of one node has more hits in an epoch than the
// share of the data that it holds.
TEST(CachesTest, OnOneNodeHitsAreTheShareThatIsCached) {
  constexpr double kData = 12'000;
  const SimulatedJob job = CacheJob(1, kData / 4);
  const auto hits = [&](std::string_view policy) {
    return BytesFrom(RunPublished(*FindPublishedPolicy(policy), job).value(),
                     SampleFetch::From::kTier);
  };
  EXPECT_EQ(hits("coordl"), 3 * kData / 4);
  EXPECT_LE(hits("belady"), 3 * kData / 4);
  EXPECT_GT(hits("belady"), 0.95 * 3 * kData / 4);
  EXPECT_LT(hits("lru"), 0.3 * 3 * kData / 4);
}

TEST(CachesTest, CoordlReadsStorageOnceWhereItsNodesHoldAll) {
  constexpr double kData = 12'000;
  const SimulatedJob job = CacheJob(4, kData / 4);
  const SimulatedRun result = RunPublished(*FindPublishedPolicy("coordl"), job).value();
  EXPECT_EQ(BytesFrom(result, SampleFetch::From::kStorage), kData);
  EXPECT_EQ(
      BytesFrom(result, SampleFetch::From::kTier) + BytesFrom(result, SampleFetch::From::kPeer),
      3 * kData);
  EXPECT_NEAR(BytesFrom(result, SampleFetch::From::kTier), 3 * kData / 4, 0.1 * kData);
}

}  // namespace
}  // namespace headrace
