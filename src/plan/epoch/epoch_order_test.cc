#include "plan/epoch/epoch_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "plan/epoch/testing/epoch_model.h"
#include "plan/epoch/testing/epoch_streams.h"
#include "plan/permutation.h"
#include "plan/testing/stream_ledger.h"

namespace headrace {
namespace {

std::uint64_t Delivered(const EpochOrderOptions& options) {
  const std::uint64_t n = options.job.sample_count;
  return options.job.drop_last ? n / GlobalBatch(options) * GlobalBatch(options) : n;
}

// A job whose sizes a seed decides: primes, single samples, blocks larger and smaller than the
// batch, even and uneven ones, pools from the least legal up to more than the dataset.
EpochOrderOptions RandomOptions(std::uint64_t seed) {
  Prng prng(seed, 0, RandomStream::kAugment);
  constexpr std::array<std::uint64_t, 8> kSamples = {1, 2, 7, 31, 64, 97, 120, 211};
  const std::uint64_t samples = kSamples.at(prng.Below(kSamples.size()));
  std::vector<std::uint32_t> counts;
  const std::uint64_t largest = 1 + prng.Below(prng.Below(4) == 0 ? samples : 12);
  const bool even = prng.Below(2) == 0;
  for (std::uint64_t left = samples; left > 0; left -= counts.back()) {
    const std::uint64_t count = even ? largest : 1 + prng.Below(largest);
    counts.push_back(static_cast<std::uint32_t>(std::min(count, left)));
  }
  const std::uint64_t step = prng.Below(2) * 5;
  const auto blocks = WheelBlocks(counts, step, 1 + prng.Below(11));
  EpochOrderOptions options{.blocks = blocks};
  options.job = {.sample_count = samples,
                 .batch_size = 1 + prng.Below(9),
                 .world_size = static_cast<std::uint32_t>(1 + prng.Below(16)),
                 .seed = prng.Next64(),
                 .drop_last = prng.Below(2) == 0,
                 .epochs = 3};
  if (options.job.drop_last && GlobalBatch(options) > samples) options.job.drop_last = false;
  options.pools = static_cast<std::uint32_t>(
      1 + prng.Below(std::min<std::uint64_t>(blocks->block_count(), 12)));
  const std::uint64_t batch = std::min(GlobalBatch(options), samples);
  const std::uint64_t share = (batch + options.pools - 1) / options.pools;
  const std::uint64_t least = std::max(2 * blocks->largest_block(),
                                       (share * blocks->total_units() + samples - 1) / samples);
  options.pool_units = options.pools * (least + prng.Below(2) * prng.Below(1 + 2 * least));
  if (prng.Below(8) == 0) options.pool_units += options.pools * blocks->total_units();
  options.join_permille = static_cast<std::uint32_t>(prng.Below(901));
  if (prng.Below(3) == 0)
    options.first_fill_permille = static_cast<std::uint32_t>(prng.Below(1001));
  if (prng.Below(3) == 0)
    options.first_join_permille = static_cast<std::uint32_t>(prng.Below(1001));
  return options;
}

template <typename Named>
Ids Samples(const std::vector<Named>& all) {
  Ids ids;
  for (const Named& each : all) ids.push_back(Raw(each.sample));
  return ids;
}

constexpr std::uint64_t kOptionSets = 400;

std::string DescribeOptions(std::uint64_t seed, const EpochOrderOptions& options) {
  return "job " + std::to_string(seed) + ": " + std::to_string(options.job.sample_count) +
         " samples, " + std::to_string(options.blocks->block_count()) + " blocks, batch " +
         std::to_string(options.job.batch_size) + " x " + std::to_string(options.job.world_size) +
         ", pools " + std::to_string(options.pools) + " of " +
         std::to_string(options.pool_units / options.pools) + " units, join " +
         std::to_string(options.join_permille) + ", first fill " +
         std::to_string(options.first_fill_permille) + ", first join " +
         std::to_string(options.first_join_permille) + (options.job.drop_last ? ", drop_last" : "");
}

TEST(EpochOrderTest, EveryRankIsGivenWhatThePageSays) {
  for (std::uint64_t seed = 0; seed < kOptionSets; ++seed) {
    EpochOrderOptions options = RandomOptions(seed);
    SCOPED_TRACE(DescribeOptions(seed, options));
    std::vector<Ids> epochs;
    for (std::uint64_t epoch = 0; epoch < options.job.epochs; ++epoch) {
      epochs.push_back(EpochModel(options, epoch).Positions());
    }
    const std::uint64_t global = GlobalBatch(options);
    for (std::uint32_t rank = 0; rank < options.job.world_size; ++rank) {
      options.job.rank = rank;
      const std::vector<Step> steps = Pull(options);
      const std::uint64_t per_epoch = StepsPerEpoch(options.job).value();
      ASSERT_EQ(steps.size(), per_epoch * options.job.epochs);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Ids& positions = epochs[i / per_epoch];
        const std::uint64_t begin = i % per_epoch * global;
        ASSERT_EQ(steps[i].epoch, i / per_epoch);
        ASSERT_EQ(steps[i].step, i % per_epoch);
        ASSERT_EQ(steps[i].ends_epoch, (i + 1) % per_epoch == 0);
        ASSERT_EQ(steps[i].deliveries.size(), RowsOfStep(options.job, steps[i].step));
        for (std::uint64_t slot = 0; slot < steps[i].deliveries.size(); ++slot) {
          const Delivery& delivery = steps[i].deliveries[slot];
          std::uint64_t g = begin + slot * options.job.world_size + rank;
          const bool padding = g >= positions.size();
          if (padding) g = begin + (g - positions.size()) % (positions.size() - begin);
          ASSERT_EQ(Raw(delivery.sample), positions[g]);
          ASSERT_EQ(delivery.rank, rank);
          ASSERT_EQ(delivery.slot, slot);
          ASSERT_EQ(delivery.block_read == kNoBlockRead, padding);
        }
      }
    }
  }
}

TEST(EpochOrderTest, EveryKeptSampleIsDeliveredOrReleasedOnceWithinThePromisedMemory) {
  for (std::uint64_t seed = 0; seed < kOptionSets; ++seed) {
    EpochOrderOptions options = RandomOptions(seed);
    SCOPED_TRACE(DescribeOptions(seed, options));
    options.job.rank = static_cast<std::uint32_t>(seed % options.job.world_size);
    const std::uint64_t limit = ResidentUnits(options);
    const std::uint32_t touched = options.pools / std::gcd(options.pools, options.job.world_size);
    ASSERT_EQ(limit, std::min(touched * (options.pool_units / options.pools),
                              2 * options.blocks->total_units()));
    std::map<std::string, double> counters;
    StreamLedger ledger(*options.blocks, limit);
    std::uint64_t most = 0;
    for (const Step& step : Pull(options, {}, &counters)) {
      ASSERT_NO_FATAL_FAILURE(ledger.Run(step));
      most = std::max(most, ledger.resident_units());
    }
    ASSERT_EQ(ledger.resident_units(), 0);
    ASSERT_LE(counters.at("resident_units_peak"), static_cast<double>(limit));
    ASSERT_GE(counters.at("resident_units_peak"), static_cast<double>(most));
  }
}

TEST(EpochOrderTest, OneRankReadsEverySampleOnceAnEpoch) {
  for (std::uint64_t seed = 0; seed < kOptionSets; ++seed) {
    EpochOrderOptions options = RandomOptions(seed);
    options.job.batch_size = GlobalBatch(options);
    options.job.world_size = 1;
    SCOPED_TRACE(DescribeOptions(seed, options));
    std::map<std::uint64_t, std::uint64_t> read;
    std::map<std::uint64_t, std::uint64_t> delivered;
    std::map<std::string, double> counters;
    std::uint64_t pieces = 0;
    for (const Step& step : Pull(options, {}, &counters)) {
      for (const BlockRead& each : step.reads) {
        ++pieces;
        ASSERT_TRUE(each.kept.empty() && !each.again);
        for (const std::uint64_t sample : StreamLedger::Kept(each)) ++read[sample];
      }
      for (const Delivery& delivery : step.deliveries) ++delivered[Raw(delivery.sample)];
      ASSERT_TRUE(step.releases.empty());
    }
    ASSERT_EQ(read, delivered);
    if (!options.job.drop_last) {
      ASSERT_EQ(read.size(), options.job.sample_count);
      for (const auto& [sample, times] : read) ASSERT_EQ(times, options.job.epochs) << sample;
    }
    // A cut adds at most one piece.
    ASSERT_LE(pieces, options.job.epochs * (options.blocks->block_count() + options.pools - 1));
    ASSERT_EQ(counters.at("blocks_read"), static_cast<double>(pieces));
    ASSERT_EQ(counters.at("samples_read"),
              static_cast<double>(Delivered(options) * options.job.epochs));
    ASSERT_EQ(counters.at("blocks_read_again"), 0);
  }
}

// Only the options and the epoch matter, though a pool is filled while the previous epoch is drawn
// from it.
TEST(EpochOrderTest, EveryPositionGivesTheRemainder) {
  for (std::uint64_t seed = 0; seed < kOptionSets / 4; ++seed) {
    EpochOrderOptions options = RandomOptions(seed);
    options.job.rank = static_cast<std::uint32_t>(seed % options.job.world_size);
    SCOPED_TRACE(DescribeOptions(seed, options));
    const std::uint64_t limit = ResidentUnits(options);
    const std::vector<Step> whole = Pull(options);
    StreamLedger straight(*options.blocks, limit);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      SCOPED_TRACE("step " + std::to_string(at));
      const std::vector<Step> rest = Pull(options, {whole[at].epoch, whole[at].step});
      ASSERT_EQ(rest.size(), whole.size() - at);
      std::multiset<std::uint64_t> again;
      std::multiset<std::uint64_t> first_reads;
      for (const BlockRead& read : rest.front().reads) {
        for (const std::uint64_t sample : StreamLedger::Kept(read)) {
          first_reads.insert(sample);
          if (read.again) again.insert(sample);
        }
      }
      const std::multiset<std::uint64_t> resident = straight.Samples();
      ASSERT_TRUE(std::ranges::includes(first_reads, resident));
      if (whole[at].step == 0) {
        ASSERT_TRUE(again.empty());
      } else if (whole[at].step * GlobalBatch(options) >= options.pools) {
        ASSERT_EQ(again, resident);  // every pool has been drawn from
      } else {
        ASSERT_TRUE(std::ranges::includes(again, resident));
      }
      StreamLedger entered(*options.blocks, limit);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        const Step& step = whole[at + i];
        ASSERT_EQ(rest[i].epoch, step.epoch);
        ASSERT_EQ(rest[i].step, step.step);
        ASSERT_EQ(rest[i].ends_epoch, step.ends_epoch);
        ASSERT_EQ(Samples(rest[i].deliveries), Samples(step.deliveries));
        ASSERT_EQ(Samples(rest[i].releases), Samples(step.releases));
        if (i > 0) {
          for (const BlockRead& read : rest[i].reads) ASSERT_FALSE(read.again);
        }
        ASSERT_NO_FATAL_FAILURE(entered.Run(rest[i]));
      }
      ASSERT_EQ(entered.resident_units(), 0);
      ASSERT_NO_FATAL_FAILURE(straight.Run(whole[at]));
    }
  }
}

TEST(EpochOrderTest, GlobalBatchesDoNotDependOnTheWorldSize) {
  const auto blocks = WheelBlocks(std::vector<std::uint32_t>(50, 19), 5, 7);
  for (const std::uint32_t pools : {1U, 5U, 12U}) {
    const auto global = [&](std::uint32_t world) {
      std::map<std::pair<std::uint64_t, std::uint64_t>, Ids> batches;
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        EpochOrderOptions options{.blocks = blocks, .pool_units = 8000, .pools = pools};
        options.job = {.sample_count = 950,
                       .batch_size = 48 / world,
                       .world_size = world,
                       .rank = rank,
                       .seed = 5,
                       .drop_last = true,
                       .epochs = 2};
        for (const Step& step : Pull(options)) {
          Ids& batch = batches[{step.epoch, step.step}];
          batch.resize(48);
          for (const Delivery& d : step.deliveries) batch[d.slot * world + rank] = Raw(d.sample);
        }
      }
      return batches;
    };
    const auto expected = global(1);
    ASSERT_EQ(expected.size(), 38);
    for (const std::uint32_t world : {2U, 3U, 4U, 6U, 8U, 12U, 16U}) {
      EXPECT_EQ(global(world), expected) << world;
    }
  }
}

// Reads are spread evenly over the run: no dip at the boundary of epochs.
TEST(EpochOrderTest, TheNextEpochFillsWhileThisOneDrains) {
  EpochOrderOptions options{.blocks = MakeUniformBlocks(2'000, 5), .pool_units = 400, .pools = 4};
  options.job = {.sample_count = 2'000, .batch_size = 20, .seed = 3, .epochs = 3};
  StreamLedger ledger(*options.blocks, 400);
  for (const Step& step : Pull(options)) {
    ASSERT_NO_FATAL_FAILURE(ledger.Run(step));
    if (step.epoch == 2 && step.step > 70) break;  // nothing comes after this epoch
    // At its last draw a pool had room for less than a block.
    ASSERT_GT(ledger.resident_units(), 400 - 4 * (5 + 1)) << step.epoch << " " << step.step;
  }
}

// Each read is due a delay after its issue, so that the end of an epoch is paced like the rest.
TEST(EpochOrderTest, ReadsAreDueADelayAfterTheirIssueAcrossTheEndOfAnEpoch) {
  EpochOrderOptions options{.job = {.sample_count = 1000, .batch_size = 10, .epochs = 3},
                            .blocks = MakeUniformBlocks(1000, 5),
                            .pool_units = 200,
                            .pools = 2};
  auto order = MakeEpochOrder(options, {});
  ASSERT_TRUE(order.ok());
  // A quarter of the pools, of 200 draws, in steps of 10.
  constexpr std::size_t kSteps = 5;
  std::vector<std::uint64_t> issued;
  std::uint64_t reads = 0;
  while (const auto step = order.value()->Next()) {
    reads += step->reads.size();
    issued.push_back(reads);
    const std::size_t now = issued.size() - 1;
    ASSERT_EQ(step->reads_due, now < kSteps ? 0 : issued[now - kSteps]) << now;
  }
  EXPECT_EQ(issued.size(), 300);
}

// With a small first fill a run begins before most of its pools are read: the reads of the first
// batches must not come last.
TEST(EpochOrderTest, TheRunsFirstReadsAreThoseThatJoinFirst) {
  EpochOrderOptions options{.blocks = MakeUniformBlocks(10'000, 10),
                            .pool_units = 4'000,
                            .pools = 4,
                            .first_fill_permille = 100};
  options.job = {.sample_count = 10'000, .batch_size = 20, .seed = 3, .epochs = 1};
  const std::vector<Step> steps = Pull(options);
  ASSERT_EQ(steps[0].reads.size(), 400);  // the first fill of every pool, in the first step
  for (const Delivery& delivery : steps[0].deliveries) {
    // 75 units of each pool's 750 join at once.
    ASSERT_LT(delivery.block_read, 4 * 7);
  }
}

// Also in tests/python/test_order_epoch.py: the order is part of the contract between nodes.
TEST(EpochOrderTest, OrderIsFrozen) {
  EpochOrderOptions options{.blocks = MakeUniformBlocks(24, 4), .pool_units = 16, .pools = 2};
  options.job = {.sample_count = 24, .batch_size = 4, .seed = 7, .epochs = 2};
  ExpectFrozen(options, 0, {8, 13, 11, 15, 10, 14, 9, 0}, 11544209883522274085U);
  ExpectFrozen(options, 1, {2, 14, 0, 13, 11, 15, 10, 7}, 13032865670481526593U);

  std::vector<std::uint32_t> uneven;
  for (std::uint32_t i = 0; i < 60; ++i) uneven.push_back(1 + i * 7 % 13);
  options = {.blocks = WheelBlocks(uneven, 5, 11), .pool_units = 900, .pools = 4};
  options.job = {.sample_count = options.blocks->sample_count(),
                 .batch_size = 7,
                 .world_size = 6,
                 .seed = ~std::uint64_t{0} - 2,
                 .epochs = 9};
  ExpectFrozen(options, 0, {367, 387, 283, 35, 191, 393, 309, 270}, 17189175151871724245U);
  options.pools = 5;
  ExpectFrozen(options, 8, {131, 4, 382, 245, 334, 134, 5, 377}, 10681475110207495915U);
  options.pools = 4;
  options.job.drop_last = true;
  options.join_permille = 600;
  options.first_fill_permille = 300;
  ExpectFrozen(options, 0, {61, 195, 62, 199, 55, 196, 191, 230}, 17065012073737368779U);
}

}  // namespace
}  // namespace headrace
