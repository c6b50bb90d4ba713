#include "workers/batch_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Phase = BatchPhase;
using Task = BatchWork::Task;

// Samples 10, 11, ...
std::shared_ptr<Batch> MakeBatch(std::uint64_t rows) {
  auto batch = std::make_shared<Batch>();
  batch->epoch = 1;
  batch->step = 3;
  for (std::uint64_t i = 0; i < rows; ++i) batch->samples.push_back(SampleId{10 + i});
  return batch;
}

// The worker buffers rows of `items` numbers of 8 bytes.
WorkerReply Shaped(const Task& task, std::uint64_t items = 2) {
  WorkerReply reply{.kind = ReplyMessage::kShaped};
  reply.shapes = {
      .rows = task.rows,
      .tree = "t",
      .leaves = {{.dtype = "int64", .item_bytes = 8, .rank = 1, .dims = {items}}},
  };
  return reply;
}
WorkerReply Done(std::string objects = "") {
  return {.kind = ReplyMessage::kDone, .objects = std::move(objects)};
}
WorkerReply Error(std::uint64_t slot, std::string text) {
  return {.kind = ReplyMessage::kError, .slot = slot, .text = std::move(text), .pickle = "p"};
}

// Of batches of rows of two numbers.
OutputLayout LayoutOf(std::uint64_t rows) {
  const std::vector<TaskShapes> shapes = {Shaped({.rows = rows}).shapes};
  OutputLayout layout;
  ShapeMismatch mismatch;
  EXPECT_TRUE(MakeOutputLayout(shapes, RaggedRows::kError, layout, mismatch)) << mismatch.text;
  return layout;
}

class BatchWorkTest : public ::testing::Test {
 protected:
  std::vector<Task*> SendAll() {
    std::vector<Task*> tasks;
    while (Task* task = work_.NextTask()) tasks.push_back(task);
    return tasks;
  }
  void GiveMemory() { work_.out().memory = pool_->Acquire(work_.out().layout.bytes).value(); }

  const std::shared_ptr<BufferPool> pool_ = BufferPool::Make(1 << 20);
  std::shared_ptr<Batch> in_ = MakeBatch(5);
  BatchWork work_{in_, 2};  // Tasks of the slots [0, 2), [2, 4), [4, 5).
};

TEST_F(BatchWorkTest, ABatchOfUnknownLayoutIsComputedAndThenWritten) {
  EXPECT_EQ(work_.phase(), Phase::kComputing);
  const std::vector<Task*> tasks = SendAll();
  ASSERT_EQ(tasks.size(), 3U);
  EXPECT_EQ(tasks[2]->first, 4U);
  EXPECT_EQ(tasks[2]->rows, 1U);
  EXPECT_FALSE(work_.OnReply(*tasks[2], Shaped(*tasks[2])));
  EXPECT_FALSE(work_.OnReply(*tasks[0], Shaped(*tasks[0])));
  EXPECT_TRUE(work_.OnReply(*tasks[1], Shaped(*tasks[1])));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kWaiting);
  EXPECT_EQ(work_.phase(), Phase::kWaiting);
  EXPECT_EQ(work_.out().layout.rows, 5U);
  EXPECT_EQ(work_.out().layout.bytes, 5 * 16U);

  GiveMemory();
  EXPECT_EQ(work_.OnMemory().size(), 3U);
  EXPECT_EQ(work_.phase(), Phase::kWriting);
  EXPECT_EQ(work_.NextTask(), nullptr);
  EXPECT_FALSE(work_.OnReply(*tasks[1], Done("b")));
  EXPECT_FALSE(work_.OnReply(*tasks[0], Done("a")));
  EXPECT_TRUE(work_.OnReply(*tasks[2], Done("c")));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  EXPECT_EQ(work_.phase(), Phase::kComplete);
  const TransformTaken taken = work_.Take();
  ASSERT_NE(taken.batch, nullptr);
  EXPECT_EQ(taken.batch->epoch, 1U);
  EXPECT_EQ(taken.batch->step, 3U);
  EXPECT_EQ(taken.batch->samples, in_->samples);
  EXPECT_EQ(taken.batch->objects, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(BatchWorkTest, ABatchOfKnownLayoutWaitsForMemoryAndTakesOneRound) {
  work_.Expect(LayoutOf(5));
  EXPECT_EQ(work_.phase(), Phase::kWaiting);
  EXPECT_EQ(work_.NextTask(), nullptr);
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  for (Task* task : SendAll()) work_.OnReply(*task, Done());
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  EXPECT_NE(work_.Take().batch, nullptr);
}

TEST_F(BatchWorkTest, AWrongExpectationGivesItsMemoryBackAndCostsARound) {
  work_.Expect(LayoutOf(5));
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  for (Task* task : SendAll()) work_.OnReply(*task, Shaped(*task, 9));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kWaiting);
  EXPECT_FALSE(work_.has_memory());
  EXPECT_EQ(pool_->stats().used_bytes, 0U);
  EXPECT_EQ(work_.out().layout.bytes, 5 * 72U);
  GiveMemory();
  EXPECT_EQ(work_.OnMemory().size(), 3U);
}

TEST_F(BatchWorkTest, ResultsOfWhichSomeAreWrittenMustHaveTheExpectedLayout) {
  work_.Expect(LayoutOf(5));
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  const std::vector<Task*> tasks = SendAll();
  work_.OnReply(*tasks[0], Done());
  work_.OnReply(*tasks[1], Shaped(*tasks[1], 3));
  work_.OnReply(*tasks[2], Done());
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  const TransformFailure failure = work_.Take().failure.value();
  EXPECT_EQ(failure.kind, TransformFailure::Kind::kShape);
  EXPECT_THAT(failure.text, HasSubstr("int64 (3,), that of the first sample int64 (2,)"));
  EXPECT_EQ(failure.tasks[0].first_slot, 2U);
  EXPECT_EQ(failure.tasks[0].samples, std::vector<SampleId>{SampleId{12}});
}

TEST_F(BatchWorkTest, WorkersThatDoNotAgreeWhatIsExpectedMakeNoBatch) {
  work_.Expect(LayoutOf(5));
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  const std::vector<Task*> tasks = SendAll();
  work_.OnReply(*tasks[0], Done());
  work_.OnReply(*tasks[1], Shaped(*tasks[1]));
  work_.OnReply(*tasks[2], Done());
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  EXPECT_EQ(work_.Take().failure.value().text, "workers do not agree on how it is written");
}

TEST_F(BatchWorkTest, OfAllErrorsTheFirstBySlotIsThatOfTheBatch) {
  const std::vector<Task*> tasks = SendAll();
  tasks[1]->worker = 7;
  work_.OnReply(*tasks[2], Error(4, "third"));
  work_.OnReply(*tasks[1], Error(3, "second"));
  work_.OnReply(*tasks[0], Shaped(*tasks[0]));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  const TransformTaken taken = work_.Take();
  EXPECT_EQ(taken.batch, nullptr);
  const TransformFailure& failure = taken.failure.value();
  EXPECT_EQ(failure.kind, TransformFailure::Kind::kTransform);
  EXPECT_EQ(failure.text, "second");
  EXPECT_EQ(failure.pickle, "p");
  EXPECT_EQ(failure.worker, 7U);
  ASSERT_EQ(failure.tasks.size(), 1U);
  EXPECT_EQ(failure.tasks[0].epoch, 1U);
  EXPECT_EQ(failure.tasks[0].step, 3U);
  EXPECT_EQ(failure.tasks[0].first_slot, 3U);
  EXPECT_EQ(failure.tasks[0].samples, std::vector<SampleId>{SampleId{13}});
}

TEST_F(BatchWorkTest, AnErrorInASlotThatTheTaskDoesNotHaveIsThatOfItsLast) {
  for (Task* task : SendAll()) work_.OnReply(*task, Error(1000, "bad"));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  EXPECT_EQ(work_.Take().failure.value().tasks[0].first_slot, 1U);
}

TEST_F(BatchWorkTest, ABatchThatFailsWithoutMemoryHasNoTaskToSend) {
  work_.Expect(LayoutOf(5));
  work_.Fail("the system has no memory", 0);
  work_.Finish();
  EXPECT_EQ(work_.NextTask(), nullptr);
  EXPECT_EQ(work_.Take().failure.value().text, "the system has no memory");
}

TEST_F(BatchWorkTest, ResultsAreForgottenUnlessTheyAreBeingWritten) {
  const std::vector<Task*> tasks = SendAll();
  EXPECT_TRUE(work_.TakeBuffered().empty());
  for (Task* task : tasks) work_.OnReply(*task, Shaped(*task));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kWaiting);
  GiveMemory();
  EXPECT_EQ(work_.OnMemory().size(), 3U);
  EXPECT_TRUE(work_.TakeBuffered().empty());
}

TEST_F(BatchWorkTest, ResultsOfABatchThatWaitsAreForgottenOnce) {
  const std::vector<Task*> tasks = SendAll();
  for (Task* task : tasks) work_.OnReply(*task, Shaped(*task));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kWaiting);
  EXPECT_EQ(work_.TakeBuffered(), tasks);
  EXPECT_TRUE(work_.TakeBuffered().empty());
}

TEST_F(BatchWorkTest, ADroppedBatchAsksForNoMemory) {
  const std::vector<Task*> tasks = SendAll();
  work_.Drop();
  for (Task* task : tasks) work_.OnReply(*task, Shaped(*task));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  EXPECT_EQ(work_.TakeBuffered(), tasks);
}

TEST_F(BatchWorkTest, AWorkerIsDoneOnlyWithWhatItWasAskedToWrite) {
  const std::vector<Task*> tasks = SendAll();
  const auto awaited = [&] {
    std::vector<ReplyMessage> kinds;
    for (const auto kind : {ReplyMessage::kError, ReplyMessage::kDone, ReplyMessage::kShaped}) {
      if (work_.Awaits(*tasks[0], kind)) kinds.push_back(kind);
    }
    return kinds;
  };
  EXPECT_THAT(awaited(), ElementsAre(ReplyMessage::kError, ReplyMessage::kShaped));
  work_.OnReply(*tasks[0], Shaped(*tasks[0]));
  EXPECT_THAT(awaited(), IsEmpty()) << "others compute";
  work_.OnReply(*tasks[1], Shaped(*tasks[1]));
  EXPECT_TRUE(work_.OnReply(*tasks[2], Shaped(*tasks[2])));
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kWaiting);
  EXPECT_THAT(awaited(), IsEmpty()) << "it waits for memory";
  GiveMemory();
  work_.OnMemory();
  EXPECT_THAT(awaited(), ElementsAre(ReplyMessage::kError, ReplyMessage::kDone));
  work_.Drop();
  EXPECT_THAT(awaited(), ElementsAre(ReplyMessage::kError, ReplyMessage::kDone));
}

TEST_F(BatchWorkTest, AWorkerThatComputesIntoMemoryMayWriteOrBuffer) {
  work_.Expect(LayoutOf(5));
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  const Task& task = *SendAll()[0];
  EXPECT_TRUE(work_.Awaits(task, ReplyMessage::kDone));
  EXPECT_TRUE(work_.Awaits(task, ReplyMessage::kShaped));
  EXPECT_TRUE(work_.Awaits(task, ReplyMessage::kError));
}

TEST_F(BatchWorkTest, WhatCameInIsHeldUntilTheEnd) {
  const std::weak_ptr<Batch> in = std::exchange(in_, nullptr);
  for (Task* task : SendAll()) work_.OnReply(*task, Done());
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  EXPECT_FALSE(in.expired());
  work_.Finish();
  EXPECT_TRUE(in.expired());
}

TEST_F(BatchWorkTest, RowsThatAreUnlikeAreComputedAgainAsOneTask) {
  const std::vector<Task*> tasks = SendAll();
  work_.OnReply(*tasks[0], Shaped(*tasks[0]));
  work_.OnReply(*tasks[1], {.kind = ReplyMessage::kUnlike});
  EXPECT_TRUE(work_.OnReply(*tasks[2], Shaped(*tasks[2])));
  EXPECT_EQ(work_.Settle(RaggedRows::kWhole), Phase::kComputing);
  EXPECT_FALSE(tasks[0]->whole);
  EXPECT_EQ(work_.TakeBuffered().size(), 2U);
  work_.ComputeWhole();
  const std::vector<Task*> whole = SendAll();
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_TRUE(whole[0]->whole);
  EXPECT_EQ(whole[0]->rows, 5U);
  WorkerReply shaped = Shaped(*whole[0]);
  shaped.shapes.rows = 1;
  EXPECT_TRUE(work_.OnReply(*whole[0], std::move(shaped)));
  EXPECT_EQ(work_.Settle(RaggedRows::kWhole), Phase::kWaiting);
  GiveMemory();
  EXPECT_EQ(work_.OnMemory().size(), 1U);
  EXPECT_TRUE(work_.OnReply(*whole[0], Done()));
  EXPECT_EQ(work_.Settle(RaggedRows::kWhole), Phase::kComplete);
  work_.Finish();
  EXPECT_NE(work_.Take().batch, nullptr);
}

TEST_F(BatchWorkTest, RowsOfOtherShapesAreUnlikeToo) {
  work_.Expect(LayoutOf(5));
  GiveMemory();
  EXPECT_TRUE(work_.OnMemory().empty());
  const std::vector<Task*> tasks = SendAll();
  work_.OnReply(*tasks[0], Done());
  work_.OnReply(*tasks[1], Shaped(*tasks[1], 3));
  work_.OnReply(*tasks[2], Done());
  EXPECT_EQ(work_.Settle(RaggedRows::kWhole), Phase::kComputing);
  EXPECT_EQ(work_.TakeBuffered().size(), 1U);
  work_.ComputeWhole();
  EXPECT_FALSE(work_.has_memory());
  EXPECT_EQ(SendAll().size(), 1U);
}

TEST_F(BatchWorkTest, AnErrorComesBeforeRowsThatAreUnlike) {
  const std::vector<Task*> tasks = SendAll();
  work_.OnReply(*tasks[0], {.kind = ReplyMessage::kUnlike});
  work_.OnReply(*tasks[1], Error(3, "bad"));
  work_.OnReply(*tasks[2], {.kind = ReplyMessage::kUnlike});
  EXPECT_EQ(work_.Settle(RaggedRows::kWhole), Phase::kComplete);
  work_.Finish();
  EXPECT_EQ(work_.Take().failure.value().text, "bad");
}

TEST_F(BatchWorkTest, RowsThatAreUnlikeFailWhereABatchIsNotComputedAgain) {
  for (Task* task : SendAll()) work_.OnReply(*task, {.kind = ReplyMessage::kUnlike});
  EXPECT_EQ(work_.Settle(RaggedRows::kError), Phase::kComplete);
  work_.Finish();
  EXPECT_EQ(work_.Take().failure.value().kind, TransformFailure::Kind::kShape);
}

TEST(BatchWorkOfNoSamplesTest, IsOneTask) {
  BatchWork work(MakeBatch(0), 2);
  Task* const task = work.NextTask();
  ASSERT_NE(task, nullptr);
  EXPECT_TRUE(task->whole);
  EXPECT_EQ(task->rows, 0U);
  EXPECT_TRUE(work.OnReply(*task, Error(0, "bad")));
  EXPECT_EQ(work.Settle(RaggedRows::kWhole), Phase::kComplete);
  work.Finish();
  EXPECT_TRUE(work.Take().failure.value().tasks.at(0).samples.empty());
}

}  // namespace
}  // namespace headrace
