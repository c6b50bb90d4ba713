#include "tier/ram_tier.h"

#include "base/testing/test_executor.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/testing/temp_files.h"
#include "tier/testing/manual_executor.h"
#include "tier/testing/sim_tier.h"
#include "tier/testing/tier_client.h"

namespace headrace {
namespace {

using testing::HasSubstr;

TEST(RamTierTest, CapacityIsRoundedDownToUnits) {
  const auto tier = RamTier::Make(10 * kKiB, 4 * kKiB).value();
  EXPECT_EQ(tier->stats().capacity_bytes, 8 * kKiB);
}

TEST(RamTierTest, WhatCanNotBeIsRefusedWithItsNumbers) {
  EXPECT_EQ(RamTier::Make(100, 4096).status().message(),
            "RAM tier: got 100 bytes, must be at least one unit of 4.0 KiB");
  EXPECT_EQ(RamTier::Make(100, 0).status().code(), StatusCode::kInvalidArgument);
  const Status odd = RamTier::Make(kMiB, 1000).status();
  EXPECT_EQ(odd.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(odd.message()), HasSubstr("RAM tier"));
  EXPECT_EQ(RamTier::Make(std::uint64_t{1} << 62, std::uint64_t{1} << 31).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(RamTierTest, EveryCallEndsInsideItself) {
  const auto tier = RamTier::Make(kMiB, 4096).value();
  const std::string bytes = RandomBytes(1, 5000);
  const TierAnswer inserted;
  tier->Insert(SampleId{1}, PartsOf(bytes, 2), inserted.done());
  EXPECT_EQ(inserted.times(), 1);
  const Tier::EntryRef entry = tier->Find(SampleId{1});
  const AlignedBuffer buffer(tier->BufferBytes(entry));
  const TierAnswer read;
  tier->Read(entry, 0, buffer.bytes(), {}, read.done_read());
  EXPECT_EQ(read.times(), 1);
}

// Faults of the test double that the suite does not produce.
TEST(SimTierTest, FaultsAreThoseOfTheSeed) {
  const auto run = [](std::uint64_t seed) {
    ManualExecutor executor;
    SimTier tier(
        executor,
        {.capacity_bytes = 400 * kKiB, .seed = seed, .insert_refused = 0.3, .corrupt = 0.3});
    std::string outcome;
    const TierPump pump = [&executor] { executor.RunAll(); };
    for (std::uint64_t i = 0; i < 40; ++i) {
      const Status inserted = InsertAndWait(tier, SampleId{i}, "bytes", pump);
      const auto read = FindAndRead(tier, SampleId{i}, pump);
      EXPECT_EQ(inserted.ok(), read.has_value());
      outcome += !inserted.ok() ? 'r' : read->ok() ? '.' : 'c';
    }
    return outcome;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  EXPECT_THAT(run(1), testing::AllOf(HasSubstr("r"), HasSubstr("."), HasSubstr("c")));
}

TEST(SimTierTest, ReadsGoByDeadlineAndBeforeInserts) {
  ManualExecutor executor;
  SimTier tier(executor, {.capacity_bytes = 400 * kKiB});
  const TierPump pump = [&executor] { executor.RunAll(); };
  ASSERT_TRUE(InsertAndWait(tier, SampleId{1}, "one", pump).ok());
  const Tier::EntryRef entry = tier.Find(SampleId{1});
  const AlignedBuffer buffer(tier.BufferBytes(entry));
  std::string order;
  const std::string two = "two";
  tier.Insert(SampleId{2}, PartsOf(two, 1), [&](const Status&) { order += 'i'; });
  tier.Read(entry, 9, buffer.bytes(), {}, [&](const auto&) { order += '9'; });
  tier.Read(entry, 3, buffer.bytes(), {}, [&](const auto&) { order += '3'; });
  pump();
  EXPECT_EQ(order, "39i");
}

}  // namespace
}  // namespace headrace
