#include "observe/stats_sums.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

struct Sums {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t sample_sum = 0;
  std::vector<std::uint64_t> steps;
  std::map<int, std::uint64_t> from;  // by tier; -1: storage, -2: other nodes
  StallTimes stall_ns{};
};

Batch DrawBatch(Prng& random, std::uint64_t epoch) {
  Batch batch{.epoch = epoch, .step = random.Below(2)};
  const std::uint64_t rows = random.Below(5);
  const bool tiers = random.Below(3) > 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    batch.samples.push_back(SampleId{random.Below(20)});
    const std::uint64_t source = random.Below(5);
    if (!tiers) continue;
    batch.sources.push_back(source == 3   ? kNoTier
                            : source == 4 ? kFromNode
                                          : static_cast<TierNumber>(source));
  }
  for (std::int64_t& ns : batch.times.stall_ns) ns = static_cast<std::int64_t>(random.Below(9));
  return batch;
}

void AddSlowly(const Batch& batch, Sums& sums) {
  ++sums.batches;
  sums.steps.push_back(batch.step);
  sums.samples += batch.samples.size();
  for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
    sums.sample_sum += SampleSum(batch.samples[slot]);
    const TierNumber source = batch.sources.empty() ? kNoTier : batch.sources[slot];
    ++sums.from[source == kNoTier ? -1 : source == kFromNode ? -2 : source];
  }
  for (std::size_t i = 0; i < kStallCauses; ++i) sums.stall_ns[i] += batch.times.stall_ns[i];
}

TEST(StatsSumsTest, EpochsAreSummedByTheirNumberInAnyOrderOfRuns) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng random(seed, 0, RandomStream::kOrder, 0x5e8);
    Delivered delivered;
    std::map<std::uint64_t, Sums> model;
    for (int i = 0; i < 200; ++i) {
      const Batch batch = DrawBatch(random, 2 * random.Below(10));
      AddBatch(batch, delivered);
      AddSlowly(batch, model[batch.epoch]);
    }
    ASSERT_EQ(delivered.epochs.size(), model.size());
    auto taken = delivered.epochs.cbegin();
    for (const auto& [epoch, sums] : model) {
      EXPECT_EQ(taken->epoch, epoch);
      EXPECT_EQ(taken->batches, sums.batches);
      EXPECT_EQ(taken->samples, sums.samples);
      EXPECT_EQ(taken->sample_sum, sums.sample_sum);
      bool in_sequence = true;
      for (std::size_t i = 1; i < sums.steps.size(); ++i) {
        in_sequence = in_sequence && sums.steps[i] == sums.steps[i - 1] + 1;
      }
      EXPECT_EQ(taken->in_sequence, in_sequence);
      EXPECT_EQ(taken->stall_ns, sums.stall_ns);
      std::map<int, std::uint64_t> from;
      if (taken->from_storage > 0) from[-1] = taken->from_storage;
      if (taken->from_nodes > 0) from[-2] = taken->from_nodes;
      for (std::size_t tier = 0; tier < taken->from_tiers.size(); ++tier) {
        if (taken->from_tiers[tier] > 0) from[static_cast<int>(tier)] = taken->from_tiers[tier];
      }
      EXPECT_EQ(from, sums.from);
      ++taken;
    }
  }
}

TEST(StatsSumsTest, TheFirstEpochAndTheNewestAreListed) {
  Delivered delivered;
  for (std::uint64_t epoch = 3; epoch < 3 + 2 * kEpochsListed; ++epoch) {
    AddBatch({.epoch = epoch}, delivered);
    AddBatch({.epoch = epoch}, delivered);
  }
  ASSERT_EQ(delivered.epochs.size(), kEpochsListed);
  EXPECT_EQ(delivered.epochs.front().epoch, 3U);
  std::uint64_t expected = 3 + 2 * kEpochsListed - (kEpochsListed - 1);
  for (std::size_t i = 1; i < kEpochsListed; ++i, ++expected) {
    EXPECT_EQ(delivered.epochs[i].epoch, expected);
    EXPECT_EQ(delivered.epochs[i].batches, 2U);
  }
  AddBatch({.epoch = 0}, delivered);  // of a run that began anew
  ASSERT_EQ(delivered.epochs.size(), kEpochsListed);
  EXPECT_EQ(delivered.epochs[0].epoch, 0U);
  EXPECT_EQ(delivered.epochs[1].epoch, 3U);
}

TEST(StatsSumsTest, ASampleThatIsMissingOrComesTwiceChangesTheSum) {
  // Frozen: ranks of other builds, and NumPy, must come to the same sum.
  EXPECT_EQ(SampleSum(SampleId{0}), 0xe220a8397b1dcdafU);
  EXPECT_NE(SampleSum(SampleId{1}) + SampleSum(SampleId{2}), SampleSum(SampleId{3}));
}

}  // namespace
}  // namespace headrace
