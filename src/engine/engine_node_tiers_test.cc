// What the engine does with what other nodes have, and for them, one claim at a time.

#include "engine/testing/written_tiers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using EngineNodeTiersTest = EngineTiersTest;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST_F(EngineNodeTiersTest, AnotherNodeIsAskedWhereItIsFasterThanTheOwnDisk) {
  AddDisk();
  nodes_.emplace(loop_, index_);
  model_ = ModelOf(1e10, 1e8, 1e9, 1e6);
  // Node 3 has sample 0 in memory, and sample 1 on its disk.
  at_nodes_ = {{2, {AtNode(0, 3, 0, 1), AtNode(1, 3, 1, 1)}}};
  Run({{0, 1}, {2}, {0, 1}}, {{0, {Insert(0, 1), Insert(1, 1)}}});
  EXPECT_THAT(nodes_->asked, ElementsAre(std::pair(3U, 0U)));
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kFromNode));
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier, 1));
  EXPECT_EQ(stats_.tiers_passed, 1u);
  EXPECT_EQ(stats_.nodes_passed, 0u);
  EXPECT_EQ(tiers_[1]->stats().inserts, 2u) << "it stays, and is not inserted again";
  EXPECT_THAT(tiers_[1]->Held(), ElementsAre(SampleId{0}, SampleId{1}));
}

TEST_F(EngineNodeTiersTest, StorageIsReadWhereItIsFasterThanAnotherNode) {
  nodes_.emplace(loop_, index_);
  model_ = ModelOf(1e10, 1e8, 1e6, 1e7);
  at_nodes_ = {{0, {AtNode(0, 3, 0)}}, {2, {AtNode(0, 3, 0)}}};
  Run({{0, 1}, {2}, {0}}, {{0, {Insert(0)}}});
  EXPECT_TRUE(nodes_->asked.empty());
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, 0)) << "it went into the tier all the same";
  EXPECT_EQ(stats_.nodes_passed, 1u);
  EXPECT_EQ(stats_.storage_uses, 3u);
}

TEST_F(EngineNodeTiersTest, TheMoreNodesReadStorageTheSoonerAnotherOneIsAsked) {
  nodes_.emplace(loop_, index_);
  model_ = ModelOf(1e10, 1e8, 4e6, 1e7);
  readers_ = {1, 2, 3, 2};  // 1e7 / readers against 4e6
  at_nodes_ = {{0, {AtNode(0, 3, 0)}},
               {1, {AtNode(1, 3, 0)}},
               {2, {AtNode(2, 3, 0)}},
               {3, {AtNode(3, 3, 0)}}};
  Run({{0}, {1}, {2}, {3}}, {});
  EXPECT_THAT(nodes_->asked, ElementsAre(std::pair(3U, 2U)));
  EXPECT_THAT(sources_[2], ElementsAre(kFromNode));
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 3));
  EXPECT_EQ(stats_.nodes_passed, 3u);
}

TEST_F(EngineNodeTiersTest, WhatAPassedTierHasIsReadFromStorageIfTheNodeFails) {
  AddDisk();
  nodes_.emplace(loop_, index_);
  nodes_->lost = {0};
  model_ = ModelOf(1e10, 1e8, 1e9, 1e6);
  at_nodes_ = {{2, {AtNode(0, 3, 0, 1)}}};
  Run({{0}, {2}, {0}}, {{0, {Insert(0, 1)}}});
  EXPECT_THAT(sources_[0], ElementsAre(kNoTier, kNoTier));
  EXPECT_EQ(stats_.node_fallbacks, 1u);
  EXPECT_EQ(tiers_[1]->stats().inserts, 1u);
}

TEST_F(EngineNodeTiersTest, ASampleOfAnotherNodeComesFromThereAndNotFromStorage) {
  nodes_.emplace(loop_, index_);
  at_nodes_ = {{0, {AtNode(1, 3), AtNode(2, 1)}}};
  Run({{0, 1, 2}, {1}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1));
  EXPECT_THAT(nodes_->asked, UnorderedElementsAre(std::pair(3U, 1U), std::pair(1U, 2U)));
  EXPECT_THAT(sources_[1], ElementsAre(kFromNode, kNoTier));
  EXPECT_EQ(stats_.node_uses, 2u);
  EXPECT_EQ(stats_.node_bytes, 2 * kSampleBytes);
  EXPECT_EQ(stats_.node_fallbacks, 0u);
  EXPECT_EQ(stats_.storage_uses, 2u);
}

TEST_F(EngineNodeTiersTest, WithoutASourceForOtherNodesTheirSamplesComeFromStorage) {
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1));
  EXPECT_EQ(stats_.node_uses, 0u);
}

TEST_F(EngineNodeTiersTest, WhatAnotherNodeDoesNotGiveComesFromStorageInTheSameRow) {
  nodes_.emplace(loop_, index_);
  nodes_->lost = {1};
  at_nodes_ = {{0, {AtNode(1, 3), AtNode(2, 3)}}};
  Run({{0, 1, 2}, {3}}, {});
  EXPECT_THAT(reads_, UnorderedElementsAre(0, 1, 3));
  EXPECT_THAT(sources_[1], ElementsAre(kNoTier));
  EXPECT_THAT(sources_[2], ElementsAre(kFromNode));
  EXPECT_EQ(stats_.node_fallbacks, 1u);
}

TEST_F(EngineNodeTiersTest, ASampleOfAnotherNodeIsInsertedWhereThePlanWantsIt) {
  nodes_.emplace(loop_, index_);
  at_nodes_ = {{0, {AtNode(1, 3)}}, {2, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}, {1}}, {{0, {Insert(1)}}});
  EXPECT_EQ(ReadsOf(1), 0);
  EXPECT_EQ(nodes_->asked.size(), 1u);
  EXPECT_THAT(sources_[1], ElementsAre(kFromNode, 0));
}

TEST_F(EngineNodeTiersTest, DamagedBytesOfAnotherNodeAreReadFromStorage) {
  nodes_.emplace(loop_, index_);
  nodes_->damaged = {1};
  index_.columns[0].info.has_checksums = true;
  index_.infos = {index_.columns[0].info};
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::string payload = index_.Payload(0, SampleId{i});
    index_.columns[0].checksums.push_back(Hash64(std::as_bytes(std::span(payload))));
  }
  at_nodes_ = {{0, {AtNode(1, 3)}}};
  Run({{0, 1}, {2}}, {});
  EXPECT_EQ(ReadsOf(1), 1);
  EXPECT_EQ(stats_.node_fallbacks, 1u);
}

TEST_F(EngineNodeTiersTest, ASampleIsBroughtForAnotherNodeOnce) {
  std::vector<std::string> brought;
  const auto bring = [&](std::uint64_t sample) {
    engine_->Bring(SampleId{sample}, 0, [&, sample](Result<Tier::EntryRef> entry) {
      brought.push_back(std::to_string(sample) +
                        (entry.ok() ? " of " + std::to_string(entry.value().bytes())
                                    : ": " + std::string(entry.status().message())));
    });
  };
  think_ns_ = 100 * kMs;
  Run({{0}, {1}, {5}, {2}}, {{0, {Insert(5), Insert(0)}}}, [&](std::size_t batch) {
    if (batch == 0) {
      bring(5);
      bring(5);
      bring(0);
      bring(7);
    }
  });
  EXPECT_EQ(ReadsOf(5), 1);
  EXPECT_THAT(brought, UnorderedElementsAre("5 of 1000", "5 of 1000", "0 of 1000",
                                            "7: bringing sample 7: the plan does not keep it now"));
  EXPECT_EQ(stats_.brought, 1u);
  EXPECT_THAT(sources_[5], ElementsAre(0));
}

// Of storage that takes one read at a time, with eight steps read ahead: bounds are in reads.
TEST_F(EngineNodeTiersTest, WhatAnotherNodeNeedsEarlierIsReadBeforeThisNodesReadsAhead) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 8;
  Run({{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}, {{0, {Insert(10), Insert(11)}}},
      [&](std::size_t batch) {
        if (batch != 0) return;
        Bring(11, /*step=*/6);
        Bring(10, /*step=*/4);
      });
  // The read of step 2 had begun.
  EXPECT_THAT(reads_, ElementsAre(0, 1, 2, 10, 3, 4, 11, 5, 6, 7, 8));
  EXPECT_THAT(brought_, ElementsAre(10, 11));
}

TEST_F(EngineNodeTiersTest, WhatAnotherNodeNeedsFarLaterIsOneOfFourReads) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 8;
  Run({{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}, {{0, {Insert(10), Insert(11)}}},
      [&](std::size_t batch) {
        if (batch != 0) return;
        Bring(11, /*step=*/1000);
        Bring(10, /*step=*/900);
      });
  EXPECT_THAT(reads_, ElementsAre(0, 1, 2, 3, 4, 10, 5, 6, 7, 11, 8));
}

TEST_F(EngineNodeTiersTest, AnotherNodeThatIsFarBehindLeavesThisOneOneOfFourReads) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 3;
  std::vector<CacheOp> kept;
  for (std::uint32_t sample = 6; sample < kSamples; ++sample) kept.push_back(Insert(sample));
  Run({{0}, {1}, {2}, {3}, {4}, {5}}, {{0, kept}}, [&](std::size_t batch) {
    if (batch != 0) return;
    for (std::uint64_t sample = 6; sample < kSamples; ++sample) Bring(sample, /*step=*/0);
  });
  EXPECT_THAT(reads_, ElementsAre(0, 1, 6, 7, 8, 2, 9, 10, 11, 3, 4, 5));
}

// A step far ahead is to read what the other node needs now: its read goes first, once.
TEST_F(EngineNodeTiersTest, WhatAnotherNodeNeedsEarlierIsReadOutOfTurnWhereARowReadsIt) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 8;
  Run({{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7, 9}, {8}}, {{0, {Insert(7), Insert(8), Insert(9)}}},
      [&](std::size_t batch) {
        if (batch != 0) return;
        Bring(9, /*step=*/4);
        Bring(7, /*step=*/6);
      });
  EXPECT_THAT(reads_, ElementsAre(0, 1, 2, 9, 3, 4, 7, 5, 6, 8));
  EXPECT_THAT(brought_, ElementsAre(9, 7));
  EXPECT_EQ(stats_.brought, 0U) << "reads of its own";
}

TEST_F(EngineNodeTiersTest, WhatIsReadOutOfTurnForAnotherNodeMayBeWhatIsNextHere) {
  options_.reads_in_flight_max = 1;
  options_.batches_max = 8;
  Run({{0}, {1}, {2}, {3}, {4}, {5}}, {{0, {Insert(2), Insert(4)}}}, [&](std::size_t batch) {
    if (batch != 0) return;
    Bring(2, /*step=*/0);
    Bring(4, /*step=*/0);
  });
  EXPECT_THAT(reads_, ElementsAre(0, 1, 2, 4, 3, 5));
  EXPECT_THAT(brought_, ElementsAre(2, 4));
}

// Two nodes that read each for the other: the other one gives nothing before it has been given.
TEST_F(EngineNodeTiersTest, WhatIsReadForOthersDoesNotWaitForWhatOthersGive) {
  for (const std::uint64_t staging_bytes : {kMiB, std::uint64_t{32} << 10}) {
    nodes_.emplace(loop_, index_);
    nodes_->holds = true;
    nodes_->on_asked = [&] {
      engine_->Bring(SampleId{11}, 1, [&](const Result<Tier::EntryRef>& entry) {
        EXPECT_TRUE(entry.ok()) << entry.status().ToString();
        nodes_->holds = false;
        nodes_->Answer();
      });
    };
    options_.reads_in_flight_max = 4;
    staging_bytes_ = staging_bytes;
    reads_.clear();
    std::vector<PlannedUse> at_nodes;
    for (std::uint32_t sample = 0; sample < 10; ++sample) at_nodes.push_back(AtNode(sample, 3));
    at_nodes_ = {{0, at_nodes}};
    Run({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, {{0, {Insert(11)}}});
    EXPECT_EQ(nodes_->asked.size(), 10U);
    EXPECT_THAT(nodes_->deadlines, Each(kDeadlinesOfStep)) << "of step 1 of the run";
    EXPECT_THAT(reads_, ElementsAre(11));
    EXPECT_EQ(stats_.node_fallbacks, 0U);
    tiers_.front()->Erase(SampleId{11});
  }
}

TEST_F(EngineNodeTiersTest, WhatIsBroughtWhenTheRunEndsIsAnswered) {
  int answers = 0;
  slow_ = 5;
  Run({{0}, {1}}, {{0, {Insert(5)}}}, [&](std::size_t batch) {
    if (batch != 1) return;
    engine_->Bring(SampleId{5}, 0, [&](const Result<Tier::EntryRef>& /*entry*/) { ++answers; });
  });
  EXPECT_EQ(answers, 1);
}

}  // namespace
}  // namespace headrace
