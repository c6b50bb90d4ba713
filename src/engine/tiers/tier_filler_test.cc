#include "engine/tiers/tier_filler.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/block_map.h"
#include "tier/ram_tier.h"
#include "tier/testing/sim_tier.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Says what a test gave it for the next step.
struct GivenOps final : Placement {
  explicit GivenOps(std::vector<CacheOp>& of) : ops(of) {}
  std::optional<PlacedStep> Next() override {
    return PlacedStep{
        .at = {.epoch = 0, .step = step++}, .uses = {}, .ops = std::exchange(ops, {})};
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }
  std::vector<CacheOp>& ops;
  std::uint64_t step = 0;
};

class TierFillerTest : public ::testing::Test, public TierFillerClient {
 protected:
  void OnArrived(RowRef row, Tier& tier) override { arrived_.emplace_back(row.slot, &tier); }
  void OnInserted(RowRef row) override { inserted_.push_back(row.slot); }
  std::optional<Fetcher::Memory> IssueNow(RowRef row) override {
    hastened_.push_back(row.slot);
    return memory_;
  }

  // A filler whose placement has said `ops`.
  void Make(std::vector<CacheOp> ops) {
    cache_ = std::make_unique<TierCache>(std::vector<Tier*>{ram_.get(), &disk_},
                                         MakeUniformBlocks(8, 1), std::make_unique<GivenOps>(ops_),
                                         std::span<const std::vector<std::uint32_t>>());
    filler_ = std::make_unique<TierFiller>(test_.loop, *cache_, nullptr, *this);
    Advance(std::move(ops));
  }
  // The placement says `ops` of one more step.
  void Advance(std::vector<CacheOp> ops) {
    ops_ = std::move(ops);
    cache_->PlanStep();
    cache_->Advance({.step = step_++});
    test_.loop.sequence = step_;
  }
  static CacheOp Insert(std::uint32_t sample, TierNumber tier = 0, bool ahead = false) {
    return {.block = sample, .from = kNoTier, .to = tier, .ahead = ahead};
  }
  std::vector<std::span<const std::byte>> Bytes(std::uint64_t sample) {
    const ByteRange range = LoopHarness::ExtentOf(sample).range;
    return {std::as_bytes(std::span(test_.index.objects[0])).subspan(range.offset, range.size)};
  }

  LoopHarness test_;
  std::unique_ptr<RamTier> ram_ = RamTier::Make(8192, 1024).value();
  SimTier disk_{test_.executor, {.capacity_bytes = 8192, .unit_bytes = 1024}};
  std::vector<CacheOp> ops_;
  std::uint64_t step_ = 0;
  std::unique_ptr<TierCache> cache_;
  std::unique_ptr<TierFiller> filler_;
  std::vector<std::pair<std::uint32_t, Tier*>> arrived_;
  std::vector<std::uint32_t> inserted_;
  std::vector<std::uint32_t> hastened_;  // by IssueNow(), which returns `memory_`
  std::optional<Fetcher::Memory> memory_;
};

TEST_F(TierFillerTest, FetchesAheadAndTellsTheRowsThatWait) {
  Make({Insert(3, 0, /*ahead=*/true)});
  EXPECT_FALSE(filler_->Await(SampleId{3}, {.slot = 7})) << "it is not on its way";
  filler_->IssueReads(/*idle=*/true);
  EXPECT_TRUE(filler_->Await(SampleId{3}, {.slot = 7}));
  EXPECT_THAT(arrived_, IsEmpty());
  test_.Run();
  EXPECT_THAT(arrived_, ElementsAre(std::pair(7U, static_cast<Tier*>(ram_.get()))));
  const SampleChain chain = filler_->Find(SampleId{3});
  const Tier::EntryRef& entry = chain.entry();
  ASSERT_TRUE(entry);
  EXPECT_EQ(filler_->CountUse(SampleId{3}, entry), 0);
  const TierCounts counts = filler_->counts();
  EXPECT_EQ(counts.fetched_ahead, 1U);
  EXPECT_EQ(counts.waits, 1U);
  EXPECT_EQ(counts.uses[0].ahead, 1U) << "ready on time";
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(TierFillerTest, RowsGoOnWhereAFillFails) {
  Make({Insert(2, 0, true), Insert(3, 0, true)});
  test_.storage.broken = {200};
  test_.index.columns[0].checksums[3] = 0;
  test_.storage.holds = true;
  filler_->IssueReads(/*idle=*/true);
  EXPECT_TRUE(filler_->Await(SampleId{2}, {.slot = 2}));
  EXPECT_TRUE(filler_->Await(SampleId{3}, {.slot = 3}));
  test_.storage.AnswerHeld();
  test_.Run();
  EXPECT_EQ(arrived_.size(), 2U);
  EXPECT_FALSE(filler_->Find(SampleId{2}).entry()) << "could not be read";
  EXPECT_FALSE(filler_->Find(SampleId{3}).entry()) << "is damaged";
  EXPECT_EQ(filler_->counts().not_kept, 2U);
}

TEST_F(TierFillerTest, WhatWasFetchedGoesIntoItsTierBeforeAnythingIsDecoded) {
  Make({Insert(3, 0, true)});
  test_.loop.sequence = 5;
  bool is_there = false;
  test_.executor.Submit(/*deadline=*/1, [&] { is_there = bool{ram_->Find(SampleId{3})}; });
  filler_->IssueReads(/*idle=*/true);
  test_.Run();
  EXPECT_TRUE(is_there) << "its row may be of a step before";
}

TEST_F(TierFillerTest, NobodyIsToldOnceTheRunHasEnded) {
  Make({Insert(3, 0, true)});
  test_.storage.holds = true;
  filler_->IssueReads(/*idle=*/true);
  EXPECT_TRUE(filler_->Await(SampleId{3}, {.slot = 7}));
  test_.loop.ended = true;
  test_.storage.AnswerHeld();
  test_.Run();
  EXPECT_THAT(arrived_, IsEmpty());
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(TierFillerTest, ARowsBytesAreInATierInMemoryAtOnceAndInOneOnDiskLater) {
  Make({Insert(1, 0), Insert(2, 1)});
  Tier* const ram = filler_->TierForMiss(SampleId{1}, {.slot = 1});
  Tier* const disk = filler_->TierForMiss(SampleId{2}, {.slot = 2});
  EXPECT_EQ(filler_->TierForMiss(SampleId{3}, {.slot = 3}), nullptr) << "nobody wants it";
  EXPECT_EQ(ram, ram_.get());
  EXPECT_EQ(disk, &disk_);
  const auto inserted = filler_->Insert(*ram, SampleId{1}, Bytes(1), {.slot = 1});
  ASSERT_TRUE(inserted.has_value());
  EXPECT_TRUE(inserted->ok());
  EXPECT_FALSE(filler_->Insert(*disk, SampleId{2}, Bytes(2), {.slot = 2}).has_value());
  EXPECT_TRUE(filler_->Await(SampleId{2}, {.slot = 5}));
  test_.Run();
  EXPECT_THAT(inserted_, ElementsAre(2));
  EXPECT_THAT(arrived_, ElementsAre(std::pair(5U, static_cast<Tier*>(&disk_))));
  EXPECT_TRUE(filler_->Find(SampleId{2}).entry());
  EXPECT_EQ(filler_->counts().storage_uses, 3U);
}

TEST_F(TierFillerTest, ADiskThatIsBehindTakesNoMoreRows) {
  Make({});
  int taken = 0;
  std::optional<Status> refused;
  for (; taken < 1000 && !refused.has_value(); ++taken) {
    refused = filler_->Insert(disk_, SampleId{1}, Bytes(1), {.slot = 1});
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(taken, 257);
  test_.Run();
}

TEST_F(TierFillerTest, WhatATierCouldNotGiveIsInsertedAnewUnlessItIsOnItsWay) {
  Make({Insert(1, 0)});
  EXPECT_EQ(filler_->FallBack(SampleId{1}, {.slot = 1}, SampleSource::kMemory), ram_.get());
  EXPECT_EQ(filler_->FallBack(SampleId{1}, {.slot = 1}, SampleSource::kMemory), nullptr);
  filler_->Finish(SampleId{1}, *ram_, Status(StatusCode::kCancelled, "not read"));
  EXPECT_EQ(filler_->FallBack(SampleId{1}, {.slot = 1}, SampleSource::kMemory), ram_.get());
  EXPECT_EQ(filler_->counts().fallbacks, 3U);
}

TEST_F(TierFillerTest, ARowThatReadsWhatAnotherNodeNeedsIsHastenedUntilItHasMemory) {
  Make({Insert(1), Insert(2)});
  filler_->TierForMiss(SampleId{1}, {.slot = 8});
  filler_->TierForMiss(SampleId{2}, {.slot = 9});
  std::vector<bool> said;
  const auto bring = [&](std::uint64_t sample) {
    filler_->Bring(SampleId{sample}, sample,
                   [&](const Result<Tier::EntryRef>& entry) { said.push_back(entry.ok()); });
  };
  bring(1);
  bring(2);
  memory_ = Fetcher::Memory::kWait;
  filler_->IssueReads(/*idle=*/false);
  filler_->IssueReads(/*idle=*/false);
  EXPECT_THAT(hastened_, ElementsAre(8, 8));
  memory_ = Fetcher::Memory::kTaken;
  filler_->IssueReads(/*idle=*/false);
  filler_->IssueReads(/*idle=*/false);
  EXPECT_THAT(hastened_, ElementsAre(8, 8, 8, 9));
  EXPECT_THAT(said, IsEmpty());
  for (const std::uint64_t sample : {std::uint64_t{1}, std::uint64_t{2}}) {
    ASSERT_TRUE(filler_->Insert(*ram_, SampleId{sample}, Bytes(sample), {}).value().ok());
    filler_->Finish(SampleId{sample}, *ram_, Status());
  }
  EXPECT_THAT(said, ElementsAre(true, true));
  EXPECT_EQ(filler_->counts().brought, 0U) << "no read but the rows'";
}

TEST_F(TierFillerTest, WhatIsAskedForBeforeTheFirstStepWaitsForIt) {
  Make({});
  test_.loop.sequence = 0;
  std::vector<std::string> said;
  const auto bring = [&](std::uint64_t sample) {
    filler_->Bring(SampleId{sample}, kDeadlinesOfStep,
                   [&, sample](const Result<Tier::EntryRef>& entry) {
                     said.push_back(std::to_string(sample) + (entry.ok() ? "" : ": no"));
                   });
  };
  bring(3);
  bring(4);
  filler_->BringBefore(kDeadlinesOfStep);
  filler_->IssueReads(/*idle=*/false);
  EXPECT_TRUE(test_.storage.read.empty());
  EXPECT_THAT(said, IsEmpty());
  Advance({Insert(3)});
  filler_->IssueReads(/*idle=*/false);
  test_.Run();
  EXPECT_THAT(said, UnorderedElementsAre("3", "4: no"));
  bring(5);
  EXPECT_EQ(said.back(), "5: no") << "the plan does not keep it now";
}

TEST_F(TierFillerTest, WhatWaitsForTheFirstStepIsAnsweredWhenTheRunEnds) {
  Make({});
  test_.loop.sequence = 0;
  filler_->Bring(SampleId{3}, kDeadlinesOfStep, [](const Result<Tier::EntryRef>&) {});
  EXPECT_EQ(filler_->DropBrought().size(), 1U);
}

TEST_F(TierFillerTest, WhatWasAnsweredMeanwhileIsNotReadForIt) {
  Make({Insert(1)});
  Tier* const ram = filler_->TierForMiss(SampleId{1}, {.slot = 8});
  bool answered = false;
  filler_->Bring(SampleId{1}, 1, [&](const Result<Tier::EntryRef>& /*entry*/) { answered = true; });
  filler_->Finish(SampleId{1}, *ram, Status(StatusCode::kCancelled, "not read"));
  EXPECT_TRUE(answered);
  filler_->IssueReads(/*idle=*/false);
  EXPECT_EQ(filler_->counts().brought, 0U);
  EXPECT_TRUE(test_.inbox.idle());
}

TEST_F(TierFillerTest, WhatIsNotBroughtIsToldWhy) {
  Make({Insert(3), Insert(4), Insert(5)});
  std::vector<std::string> said;
  const auto bring = [&](std::uint64_t sample) {
    filler_->Bring(SampleId{sample}, 0, [&](const Result<Tier::EntryRef>& entry) {
      said.push_back(entry.status().ToString());
    });
  };
  bring(3);
  bring(5);
  Advance({{.block = 3, .from = 0, .to = kNoTier}});
  test_.index.samples = 5;  // The index is damaged where it has sample 5.
  filler_->BringBefore(1);
  EXPECT_THAT(said, UnorderedElementsAre("NotFound: bringing sample 3: the plan has gone on",
                                         "OutOfRange: no such sample"));
  for (int i = 0; i < 8192; ++i) bring(4);
  said.clear();
  bring(4);
  EXPECT_THAT(said, ElementsAre("ResourceExhausted: bringing sample 4: 8192 others wait to be "
                                "brought"));
  static_cast<void>(filler_->DropBrought());
}

TEST_F(TierFillerTest, MovesASampleToTheTierThatIsToHaveIt) {
  Make({Insert(1, 0), {.block = 1, .from = 0, .to = 1}});
  // It arrives after the plan has moved it on.
  EXPECT_TRUE(filler_->Insert(*ram_, SampleId{1}, Bytes(1), {})->ok());
  filler_->Finish(SampleId{1}, *ram_, Status());
  test_.Run();
  EXPECT_FALSE(ram_->Find(SampleId{1}));
  EXPECT_TRUE(disk_.Find(SampleId{1}));
  EXPECT_EQ(filler_->counts().moved, 1U);
}

TEST_F(TierFillerTest, WhatAStepTakesOutOfATierAndIntoAnotherIsMoved) {
  Make({Insert(1, 1)});
  disk_.Insert(SampleId{1}, Bytes(1), [](const Status& status) { EXPECT_TRUE(status.ok()); });
  test_.Run();
  Advance({{.block = 1, .from = 1, .to = kNoTier}, Insert(1, 0)});
  filler_->IssueMoves();
  test_.Run();
  EXPECT_TRUE(filler_->Find(SampleId{1}).entry());
  EXPECT_TRUE(ram_->Find(SampleId{1}));
  EXPECT_FALSE(disk_.Find(SampleId{1}));
  EXPECT_EQ(filler_->counts().moved, 1U);
}

TEST_F(TierFillerTest, WhatAStepBringsBackStays) {
  Make({Insert(1, 0)});
  EXPECT_TRUE(filler_->Insert(*ram_, SampleId{1}, Bytes(1), {})->ok());
  Advance({{.block = 1, .from = 0, .to = 1}, {.block = 1, .from = 1, .to = 0}});
  EXPECT_TRUE(filler_->Find(SampleId{1}).entry());
  EXPECT_FALSE(cache_->NextMove().has_value());
}

TEST_F(TierFillerTest, WhatWaitsToBeMovedGoesWhereALaterStepWantsIt) {
  Make({Insert(1, 0), Insert(2, 0)});
  for (const std::uint64_t sample : {1U, 2U}) {
    EXPECT_TRUE(filler_->Insert(*ram_, SampleId{sample}, Bytes(sample), {})->ok());
  }
  Advance({{.block = 1, .from = 0, .to = 1}, {.block = 2, .from = 0, .to = 1}});
  Advance({{.block = 1, .from = 1, .to = 0}, {.block = 2, .from = 1, .to = kNoTier}});
  filler_->IssueMoves();
  EXPECT_TRUE(filler_->Await(SampleId{1}, {.slot = 1}));
  test_.Run();
  EXPECT_THAT(arrived_, ElementsAre(std::pair(1U, static_cast<Tier*>(ram_.get()))));
  EXPECT_TRUE(ram_->Find(SampleId{1}));
  EXPECT_FALSE(ram_->Find(SampleId{2}));
  EXPECT_FALSE(disk_.Find(SampleId{2}));
  EXPECT_EQ(filler_->counts().not_kept, 0U);
}

TEST_F(TierFillerTest, ADiskWithTooManyInsertsAheadIsPassedOver) {
  Make({Insert(3, 1), Insert(4, 1)});
  test_.options.tier_inserts_max = 1;
  EXPECT_EQ(filler_->TierForMiss(SampleId{3}, {.slot = 1}), &disk_);
  EXPECT_EQ(filler_->TierForMiss(SampleId{4}, {.slot = 2}), &disk_);
  EXPECT_FALSE(filler_->Insert(disk_, SampleId{3}, Bytes(3), {.slot = 1}).has_value());
  const std::optional<Status> second = filler_->Insert(disk_, SampleId{4}, Bytes(4), {.slot = 2});
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->code(), StatusCode::kResourceExhausted);
  filler_->Finish(SampleId{4}, disk_, *second);
  test_.Run();
  EXPECT_THAT(inserted_, ElementsAre(1U));
  EXPECT_EQ(filler_->counts().to_keep, 2U);
  EXPECT_EQ(filler_->counts().not_kept, 1U);
}

}  // namespace
}  // namespace headrace
