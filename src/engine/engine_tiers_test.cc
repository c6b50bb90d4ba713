// What the engine does with the tiers of its node, one claim at a time.

#include "engine/testing/written_tiers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST_F(EngineTiersTest, WhatIsReadOnceIsInsertedAndNotReadAgain) {
  Run({{0, 1}, {2}, {1, 0}}, {{0, {Insert(0), Insert(1)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 0));
  EXPECT_EQ(stats_.uses[0].samples, 2u);
  EXPECT_EQ(stats_.uses[0].ahead, 0u);
  EXPECT_EQ(stats_.storage_uses, 3u);
}

TEST_F(EngineTiersTest, WhatIsEvictedIsReadAgainAndWhatIsNotWantedIsNotInserted) {
  Run({{0, 1}, {2}, {0, 1}}, {{0, {Insert(0)}}, {1, {Evict(0)}}});
  EXPECT_EQ(ReadsOf(0), 2);
  EXPECT_EQ(ReadsOf(1), 2);
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
}

TEST_F(EngineTiersTest, SamplesAreFetchedAheadWhileTheConsumerThinks) {
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {5, 6}}, {{0, {Ahead(5), Ahead(6)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 5, 6));
  EXPECT_EQ(stats_.fetched_ahead, 2u);
  EXPECT_EQ(stats_.uses[0].ahead, 2u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

TEST_F(EngineTiersTest, WhatSomebodyWaitsForIsReadBeforeWhatIsFetchedAhead) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 2;
  Run({{0, 1, 2}, {3, 4}}, {{0, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(reads_.back(), 5u);
}

// NoPFS's helper: whoever comes first fetches, and inserts it into the tier.
TEST_F(EngineTiersTest, ASampleLinedUpIsInsertedByTheReadThatNeedsIt) {
  options_.batches_max = 3;
  Run({{0}, {5}, {5}}, {{0, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.fetched_ahead, 0u);
  EXPECT_EQ(stats_.uses[0].samples, 1u);
  EXPECT_EQ(stats_.uses[0].ahead, 0u);  // It was used before it was there: reuse.
}

TEST_F(EngineTiersTest, ARowWaitsForASampleOnItsWay) {
  slow_ = 5;
  Run({{0}, {1}, {5}}, {{1, {Ahead(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.waits, 1u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

TEST_F(EngineTiersTest, ASampleEvictedOnItsWayIsGivenToThoseWhoWaitAndThenLetGo) {
  options_.batches_max = 4;
  Run({{5}, {5}, {5}, {1}}, {{0, {Insert(5)}}, {2, {Evict(5)}}});
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_EQ(stats_.waits, 2u);
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
}

TEST_F(EngineTiersTest, ADiskIsWrittenAndReadWithoutStorage) {
  tiers_.clear();
  AddDisk();
  Run({{0, 1}, {2}, {1, 0}}, {{0, {Insert(0), Insert(1)}}});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier, 0));
  EXPECT_EQ(tiers_[0]->stats().inserts, 2u);
}

TEST_F(EngineTiersTest, ACorruptEntryIsReadFromStorageAndInsertedAnew) {
  tiers_.clear();
  SimTier& disk = AddDisk();
  Run({{0, 1}, {2}, {1, 0}, {3}, {0, 1}}, {{0, {Insert(0), Insert(1)}}}, [&](std::size_t batch) {
    if (batch == 0) disk.Corrupt(SampleId{0});
  });
  EXPECT_EQ(ReadsOf(0), 2);
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_EQ(stats_.fallbacks, 1u);
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kNoTier, 0));
}

TEST_F(EngineTiersTest, ADiskThatFailsCostsReadsAndNothingElse) {
  tiers_.clear();
  SimTier& disk = AddDisk();
  Run({{0, 1}, {2}, {1, 0}, {3}, {0, 1}}, {{0, {Insert(0), Insert(1)}}, {3, {Insert(3)}}},
      [&](std::size_t batch) {
        if (batch == 1) disk.FailReads();
        if (batch == 2) disk.FailInserts();
      });
  EXPECT_TRUE(disk.stats().degraded);
  EXPECT_GE(stats_.fallbacks, 1u);
  EXPECT_GE(stats_.not_kept, 1u);
}

TEST_F(EngineTiersTest, AMoveTakesASampleFromTierToTier) {
  AddDisk();
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {2}, {0}}, {{0, {Insert(0)}}, {1, {{.block = 0, .from = 0, .to = 1}}}});
  EXPECT_EQ(ReadsOf(0), 1);
  EXPECT_EQ(stats_.moved, 1u);
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 1));
  EXPECT_THAT(tiers_[0]->Held(), ElementsAre());
  EXPECT_THAT(tiers_[1]->Held(), ElementsAre(SampleId{0}));
}

TEST_F(EngineTiersTest, AFullTierRefusesAndTheRowComesAllTheSame) {
  tiers_.clear();
  AddRam(/*samples=*/1);
  Run({{0, 1}, {0, 1}}, {{0, {Insert(0), Insert(1)}}});  // A plan that is wrong.
  EXPECT_EQ(stats_.not_kept, 2u);
  EXPECT_EQ(tiers_[0]->stats().entries, 1u);
}

TEST_F(EngineTiersTest, StorageIsTakenWhereTheModelSaysItIsFaster) {
  tiers_.clear();
  AddDisk();
  model_ = MachineModel{.storage = {.rate = RateOf(1e9)}};
  model_->tiers.push_back({.read = RateOf(1e8), .write = RateOf(1e8)});
  Run({{0}, {1}, {0}}, {{0, {Insert(0)}}});
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kNoTier));
  EXPECT_EQ(tiers_[0]->stats().inserts, 1u);
  EXPECT_EQ(ReadsOf(0), 2);
}

TEST_F(EngineTiersTest, ASampleThatWasLostOnTheWayIsInsertedFromStorage) {
  nodes_.emplace(loop_, index_);
  nodes_->lost = {1};
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}, {1}}, {{0, {Insert(1)}}});
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier, 0));
}

TEST_F(EngineTiersTest, APlanThatNamesAnInsertTwiceIsADefect) {
  EXPECT_DEATH(Run({{0}, {1}}, {{0, {Insert(0), Insert(0)}}}), "check failed");
}

TEST_F(EngineTiersTest, ARowThatWaitedForADiskIsReadBeforeLaterSteps) {
  AddDisk();
  options_.reads_in_flight_max = 1;
  options_.batches_max = 8;
  std::size_t reads = 0;
  Run({{0}, {0}, {1}, {2}, {3}, {4}, {5}, {6}}, {{0, {Insert(0, 1)}}}, [&](std::size_t batch) {
    if (batch == 1) reads = reads_.size();
  });
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 1));
  EXPECT_LE(reads, 4U) << "of 7, while it waited for one read, the disk and another read";
}

}  // namespace
}  // namespace headrace
