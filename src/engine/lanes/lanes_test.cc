#include "engine/lanes/lanes.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/testing/loop_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/memory_store.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct Sink final : BatchSink {
  void OnBatch(std::shared_ptr<Batch> batch) override { batches.push_back(std::move(batch)); }
  void OnEnd(Status status) override { end = std::move(status); }
  std::vector<std::shared_ptr<Batch>> batches;
  std::optional<Status> end;
};

// Two lanes, of ranks 4 and 5, with batches of two samples.
class LanesTest : public ::testing::Test {
 protected:
  LanesTest() {
    for (EngineLane& lane : parts_) lane.batch_memory = BufferPool::Make(kMiB);
    parts_[0].sink = &sinks_[0];
    parts_[1].sink = &sinks_[1];
    test_.options.batches_max = 2;
    lanes_ = std::make_unique<Lanes>(test_.loop,
                                     LaneOptions{.first_rank = 4,
                                                 .have_come = [this](auto) { return have_come_; },
                                                 .check =
                                                     [this](bool ends_epoch) {
                                                       checked_.push_back(ends_epoch);
                                                       return check_;
                                                     },
                                                 .wait = &wait_},
                                     parts_, maker_);
  }
  // Samples 0 and 1 for rank 4, 2 and 3 for rank 5.
  static Step StepOf(std::uint64_t number, std::uint64_t block_read = kNoBlockRead) {
    Step step{.epoch = 0, .step = number};
    for (std::uint32_t i = 0; i < 4; ++i) {
      step.deliveries.push_back(
          {.sample = SampleId{i}, .rank = 4 + i / 2, .slot = i % 2, .block_read = block_read});
    }
    return step;
  }
  std::vector<StepWork*> Admit(std::uint64_t number, std::uint64_t block_read = kNoBlockRead) {
    lanes_->SetNext(StepOf(number, block_read));
    EXPECT_TRUE(lanes_->MakeBatches().value());
    return Admit();
  }
  std::vector<StepWork*> Admit() {
    AdmittedStep admitted = lanes_->Admit();
    admitted_ = std::move(admitted.step);
    return std::move(admitted.works);
  }
  // How the run ends, if it does.
  std::optional<Status> HandOver(bool plan_ended) {
    const Status* const end = lanes_->HandOver(plan_ended);
    return end != nullptr ? std::optional(*end) : std::nullopt;
  }
  void Finish(StepWork& work) const {
    while (work.samples_left > 0) work.MarkDone(test_.clock.now_ns);
  }

  LoopHarness test_;
  MemoryStore store_{{}};
  BatchMaker maker_{test_.index, test_.schema, store_};
  Sink sinks_[2];
  std::vector<EngineLane> parts_{2};
  bool have_come_ = true;
  std::vector<bool> checked_;
  std::optional<Status> check_ = Status();
  StepWait wait_;
  Step admitted_;
  std::unique_ptr<Lanes> lanes_;
};

TEST_F(LanesTest, DividesAStepByRankAndWeighsTheParts) {
  const std::vector<StepWork*> works = Admit(0);
  ASSERT_THAT(works, SizeIs(2));
  EXPECT_THAT(works[1]->batch->samples, ElementsAre(SampleId{2}, SampleId{3}));
  EXPECT_EQ(works[1]->stored_bytes, 200U);
  EXPECT_EQ(works[1]->Deadline(100), works[1]->deadline + (kDeadlinesOfStep - 1) / 2);
  EXPECT_EQ(lanes_->Loads(works)[1].step_samples, 2U);
}

TEST_F(LanesTest, HandsOverEachLanesBatchesInTheOrderOfThePlan) {
  const auto first = Admit(0);
  const auto second = Admit(1);
  EXPECT_FALSE(lanes_->has_room()) << "batches_max";
  Finish(*second[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, IsEmpty());
  Finish(*first[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  ASSERT_THAT(sinks_[0].batches, SizeIs(2));
  EXPECT_EQ(sinks_[0].batches[1]->step, 1U);
  EXPECT_THAT(sinks_[1].batches, IsEmpty()) << "the lanes do not wait for each other";
}

TEST_F(LanesTest, WhereRowsAreOnlyCopiedAFewStepsAreEnough) {
  test_.options.batches_max = 8;
  const auto first = Admit(0);
  for (StepWork* const work : first) work->copying_bytes = 4 * kMiB;
  EXPECT_TRUE(lanes_->has_room()) << "one step is too few";
  const auto second = Admit(1);
  EXPECT_FALSE(lanes_->has_room());
  first[1]->copying_bytes = 4 * kMiB - 1;
  EXPECT_TRUE(lanes_->has_room()) << "this lane has not enough to copy";
  second[1]->copying_bytes = 1;
  EXPECT_FALSE(lanes_->has_room()) << "of all its steps";
  lanes_->Leave(1);
  EXPECT_FALSE(lanes_->has_room());
  first[0]->copying_bytes = 0;
  EXPECT_TRUE(lanes_->has_room());
}

TEST_F(LanesTest, ABatchWaitsForItsSamples) {
  Finish(*Admit(0)[0]);
  const auto second = Admit(1);
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, SizeIs(1));
  Finish(*second[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, SizeIs(2));
}

TEST_F(LanesTest, ABatchWaitsForTheBlockReadsThatAreDue) {
  have_come_ = false;
  Finish(*Admit(0)[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, IsEmpty());
  have_come_ = true;
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, SizeIs(1));
}

TEST_F(LanesTest, ABatchWaitsForItsCheckWhoseErrorTakesItsPlace) {
  Finish(*Admit(0)[0]);
  check_ = std::nullopt;
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, IsEmpty());
  check_ = Status();
  EXPECT_FALSE(HandOver(false).has_value());
  EXPECT_THAT(sinks_[0].batches, SizeIs(1));
  Step last = StepOf(1);
  last.ends_epoch = true;
  lanes_->SetNext(std::move(last));
  EXPECT_TRUE(lanes_->MakeBatches().value());
  Finish(*Admit()[0]);
  check_ = Status(StatusCode::kFailedPrecondition, "changed");
  EXPECT_EQ(HandOver(false)->message(), "changed");
  EXPECT_THAT(sinks_[0].batches, SizeIs(1));
  EXPECT_THAT(checked_, ElementsAre(false, false, true));
}

TEST_F(LanesTest, AStepIsWaitedForSinceItsConsumerWaitsTheLongestWaitFirst) {
  test_.loop.sequence = 3;
  const auto first = Admit(0);
  test_.loop.sequence = 4;
  const auto second = Admit(1);
  lanes_->SetStallCauses();
  EXPECT_EQ(wait_.SinceNs(0), std::nullopt) << "what is read ahead";
  lanes_->OnWaiting(1, 700);
  lanes_->OnWaiting(0, 900);
  test_.loop.now_ns = 1000;
  lanes_->AccountStalls();
  lanes_->SetStallCauses();
  EXPECT_EQ(wait_.SinceNs(4 * kDeadlinesOfStep - 1), 700) << "all of the first step";
  EXPECT_EQ(wait_.SinceNs(4 * kDeadlinesOfStep), std::nullopt) << "not of the second";
  Finish(*first[1]);
  EXPECT_FALSE(HandOver(false).has_value());
  lanes_->SetStallCauses();
  EXPECT_EQ(wait_.SinceNs(3 * kDeadlinesOfStep), 900) << "of the other lane";
  Finish(*first[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  lanes_->SetStallCauses();
  EXPECT_EQ(wait_.SinceNs(0), std::nullopt);
}

TEST_F(LanesTest, TheErrorOfAStepEndsTheRunAfterTheBatchesBeforeIt) {
  const auto first = Admit(0);
  const auto second = Admit(1);
  second[0]->error.emplace(1, Status(StatusCode::kDataLoss, "damaged"));
  Finish(*second[0]);
  EXPECT_FALSE(HandOver(true).has_value());
  Finish(*first[0]);
  const std::optional<Status> end = HandOver(true);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), StatusCode::kDataLoss);
  EXPECT_THAT(sinks_[0].batches, SizeIs(1));
  lanes_->End(*end);
  EXPECT_EQ(sinks_[1].end->code(), StatusCode::kDataLoss);
}

TEST_F(LanesTest, ThePlanEndsForEachLaneWhenItsLastBatchIsHandedOver) {
  const auto works = Admit(0);
  Finish(*works[0]);
  EXPECT_FALSE(HandOver(/*plan_ended=*/true).has_value());
  EXPECT_TRUE(sinks_[0].end->ok());
  EXPECT_FALSE(sinks_[1].end.has_value());
  Finish(*works[1]);
  EXPECT_TRUE(HandOver(true)->ok());
}

TEST_F(LanesTest, WhatBlockReadsKeepForALaneThatLeftIsReleased) {
  lanes_->Leave(0);
  EXPECT_TRUE(lanes_->has_room()) << "of the other";
  EXPECT_THAT(Admit(0, /*block_read=*/7), SizeIs(1));
  EXPECT_THAT(admitted_.releases, ElementsAre(Release{.block_read = 7, .sample = SampleId{0}},
                                              Release{.block_read = 7, .sample = SampleId{1}}));
  lanes_->Leave(1);
  EXPECT_FALSE(lanes_->has_room()) << "nobody takes batches";
}

TEST_F(LanesTest, AStepWaitsForTheMemoryOfAllItsBatches) {
  std::optional<Buffer> taken = parts_[1].batch_memory->Acquire(kMiB);
  lanes_->SetNext(StepOf(0));
  EXPECT_FALSE(lanes_->MakeBatches().value());
  EXPECT_TRUE(lanes_->has_next());
  taken.reset();
  EXPECT_TRUE(lanes_->MakeBatches().value());
  EXPECT_THAT(Admit(), SizeIs(2));
  EXPECT_FALSE(lanes_->has_next());
}

TEST_F(LanesTest, AConsumerThatWaitsWhileItHoldsAllMemoryGetsABatchBeyondTheBudget) {
  const std::optional<Buffer> held = parts_[0].batch_memory->Acquire(kMiB);
  lanes_->SetNext(StepOf(0));
  EXPECT_FALSE(lanes_->MakeBatches().value());
  lanes_->OnWaiting(0, 0);
  EXPECT_TRUE(lanes_->MakeBatches().value());
  EXPECT_TRUE(Admit()[0]->batch->beyond_budget);
}

TEST_F(LanesTest, AWaitIsCountedAgainstWhatTheOldestStepLacks) {
  const auto works = Admit(0);
  lanes_->OnWaiting(0, 0);
  lanes_->SetStallCauses();
  const auto wait = [&](std::int64_t until_ns) {
    test_.loop.now_ns = until_ns;
    lanes_->AccountStalls();
    lanes_->SetStallCauses();
  };
  works[0]->MarkRead(0, 2);
  wait(10);  // Bytes were missing so far.
  wait(30);
  Finish(*works[0]);
  test_.clock.now_ns = 30;
  EXPECT_FALSE(HandOver(false).has_value());
  const StallTimes stalls = lanes_->stats().lanes[0].stall_ns;
  EXPECT_EQ(stalls[static_cast<int>(StallCause::kStorage)], 10);
  EXPECT_EQ(stalls[static_cast<int>(StallCause::kDecode)], 20);
  lanes_->OnTaken(0, 40);
  EXPECT_EQ(lanes_->stats().lanes[0].ready, 0U);
}

TEST_F(LanesTest, ALaneThatLeavesWhileItWaitsWaitsNoLongerAndHoldsNobodyResponsible) {
  for (std::uint64_t number = 0; number < 2; ++number) {
    for (StepWork* const work : Admit(number)) Finish(*work);
    EXPECT_FALSE(HandOver(false).has_value());
  }
  for (int i = 0; i < 2; ++i) lanes_->OnTaken(0, 0);
  lanes_->OnWaiting(0, 0);
  lanes_->SetStallCauses();  // It waits for lane 1, which has taken nothing.
  test_.clock.now_ns = 10;
  lanes_->Leave(0);
  test_.loop.now_ns = 30;
  lanes_->AccountStalls();
  const std::vector<LaneStats> lanes = lanes_->stats().lanes;
  EXPECT_EQ(lanes[0].stall_ns[static_cast<int>(StallCause::kRanks)], 10);
  EXPECT_EQ(lanes[1].held_up_ns, 10);
}

TEST_F(LanesTest, SubstitutionsAreListedWithTheBatchThatHasThem) {
  const auto works = Admit(0);
  works[0]->samples[1].reason = Status(StatusCode::kDataLoss, "damaged");
  works[0]->batch->samples[1] = SampleId{6};
  Finish(*works[0]);
  EXPECT_FALSE(HandOver(false).has_value());
  ASSERT_THAT(sinks_[0].batches[0]->substitutions, SizeIs(1));
  EXPECT_EQ(sinks_[0].batches[0]->substitutions[0].wanted, SampleId{1});
  EXPECT_EQ(sinks_[0].batches[0]->substitutions[0].given, SampleId{6});
  EXPECT_EQ(lanes_->stats().substituted, 1U);
}

}  // namespace
}  // namespace headrace
