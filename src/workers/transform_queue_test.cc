#include "workers/transform_queue.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "workers/testing/no_memory.h"

namespace headrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Notes what would be sent, as "worker: what [slots)".
class NotedTasks final : public TaskSink {
 public:
  Status Compute(std::size_t worker, const TaskSlots& task, const Batch& in,
                 const TransformedBatch& /*out*/, bool direct) override {
    sent.push_back({.worker = worker, .task = task});
    const std::string compute = task.whole ? "compute whole" : "compute";
    Note(worker, direct ? compute + " and write" : compute, in.step, task);
    return result;
  }
  Status Write(std::size_t worker, const TaskSlots& task, const TransformedBatch& out) override {
    EXPECT_FALSE(out.memory.bytes().empty());
    Note(worker, "write", out.step, task);
    return result;
  }
  Status Forget(std::size_t worker, std::uint64_t number) override {
    noted_.push_back(fmt::format("{}: forget {}", worker, number));
    return result;
  }
  void Close(std::size_t worker) override { noted_.push_back(fmt::format("{}: close", worker)); }

  // What was noted since the last call.
  std::vector<std::string> Noted() { return std::exchange(noted_, {}); }

  struct Sent {
    std::size_t worker = 0;
    TaskSlots task;
  };
  std::vector<Sent> sent;  // to compute, by number from 1 on
  Status result;           // of sending

 private:
  void Note(std::size_t worker, const std::string& what, std::uint64_t step,
            const TaskSlots& task) {
    noted_.push_back(
        fmt::format("{}: {} {}:[{}, {})", worker, what, step, task.first, task.first + task.rows));
  }

  std::vector<std::string> noted_;
};

constexpr std::uint64_t kRows = 4;  // of a batch

// Rows are numbers of 8 bytes; memory is counted in batches of one page. The memory's limit is
// larger than all batches, unless a test sets another.
class TransformQueueTest : public ::testing::Test {
 protected:
  void Make(ResultForm form, std::size_t workers,
            std::optional<std::uint64_t> memory_batches = 100) {
    std::optional<std::uint64_t> bytes;
    if (memory_batches.has_value()) bytes = *memory_batches * BufferPool::ChargedBytes(1);
    memory_ = std::make_unique<ResultMemory>(
        ResultMemory::Options{.bytes = bytes, .batches_max = 8, .twice = !form.is_uniform()},
        nullptr);
    queue_ =
        std::make_unique<TransformQueue>(form, workers, *memory_, sink_, [this] { ++changes_; });
    for (std::size_t i = 0; i < workers; ++i) queue_->OnReply(i, {.kind = ReplyMessage::kReady});
  }
  // Returns what tells whether it is held.
  std::weak_ptr<Batch> Add() {
    auto batch = std::make_shared<Batch>();
    batch->step = step_++;
    for (std::uint64_t i = 0; i < kRows; ++i) batch->samples.push_back(SampleId{i});
    std::weak_ptr<Batch> added = batch;
    queue_->Add(std::move(batch));
    return added;
  }

  // Replies to the task of that number.
  void Reply(std::uint64_t number, WorkerReply reply) {
    reply.task = number;
    queue_->OnReply(sink_.sent.at(number - 1).worker, std::move(reply));
  }
  void ReplyShaped(std::initializer_list<std::uint64_t> numbers, std::uint64_t items = 1) {
    for (const std::uint64_t number : numbers) {
      WorkerReply reply{.kind = ReplyMessage::kShaped, .busy_ns = 1000};
      reply.shapes = {.rows = sink_.sent.at(number - 1).task.rows,
                      .leaves = {{.item_bytes = 8, .rank = 1, .dims = {items}}}};
      Reply(number, std::move(reply));
    }
  }
  void Finish(std::initializer_list<std::uint64_t> numbers) {
    for (const std::uint64_t number : numbers) Reply(number, {.kind = ReplyMessage::kDone});
  }

  // The step of the oldest batch, if it is complete; the consumer then holds it.
  std::uint64_t Take() {
    EXPECT_TRUE(queue_->is_ready());
    TransformTaken taken = queue_->Take();
    EXPECT_NE(taken.batch, nullptr);
    held_.push_back(std::move(taken.batch));
    return held_.back()->step;
  }
  // With one worker: of the first batch, whose tasks have the numbers 1 and 2.
  void TakeTheFirst() {
    Add();
    ReplyShaped({1, 2});
    Finish({1, 2});
    EXPECT_EQ(Take(), 0U);
    sink_.Noted();
  }

  NotedTasks sink_;
  int changes_ = 0;
  std::unique_ptr<ResultMemory> memory_;
  std::unique_ptr<TransformQueue> queue_;
  std::vector<std::unique_ptr<TransformedBatch>> held_;
  std::uint64_t step_ = 0;
};

TEST_F(TransformQueueTest, TheFirstBatchShowsTheLayoutOfThoseThatFollow) {
  Make({}, 2);
  EXPECT_TRUE(queue_->has_room());
  Add();
  EXPECT_FALSE(queue_->has_room()) << "no result has shown its size";
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute 0:[0, 1)", "1: compute 0:[1, 2)",
                                         "0: compute 0:[2, 3)", "1: compute 0:[3, 4)"));
  ReplyShaped({1, 2, 3});
  EXPECT_THAT(sink_.Noted(), IsEmpty());
  ReplyShaped({4});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: write 0:[0, 1)", "1: write 0:[1, 2)",
                                         "0: write 0:[2, 3)", "1: write 0:[3, 4)"));
  EXPECT_TRUE(queue_->has_room());
  Finish({1, 2, 3});
  EXPECT_FALSE(queue_->is_ready());
  Finish({4});
  EXPECT_EQ(Take(), 0U);
  EXPECT_TRUE(queue_->empty());

  Add();
  EXPECT_THAT(sink_.Noted(),
              ElementsAre("0: compute and write 1:[0, 2)", "1: compute and write 1:[2, 4)"));
  Finish({6, 5});
  EXPECT_EQ(Take(), 1U);
  const TransformQueue::Stats stats = queue_->stats();
  EXPECT_EQ(stats.batches, 2U);
  EXPECT_EQ(stats.samples, 2 * kRows);
  EXPECT_EQ(stats.tasks, 4U) << "those that took time";
  EXPECT_EQ(stats.rows, 4U);
  EXPECT_EQ(stats.busy_ns, 4000U);
  EXPECT_GT(stats.memory.used_bytes, 0U);
}

TEST_F(TransformQueueTest, BatchesComeInOrderWhicheverIsCompleteFirst) {
  Make({}, 1);
  TakeTheFirst();
  Add();
  Add();
  EXPECT_THAT(sink_.Noted(),
              ElementsAre("0: compute and write 1:[0, 4)", "0: compute and write 2:[0, 4)"));
  Finish({4});
  EXPECT_FALSE(queue_->is_ready());
  Finish({3});
  EXPECT_EQ(Take(), 1U);
  EXPECT_EQ(Take(), 2U);
}

TEST_F(TransformQueueTest, AWorkerHasTwoTasksAndGetsTheNextForItsReply) {
  Make({}, 1);
  TakeTheFirst();
  for (int i = 0; i < 3; ++i) Add();
  EXPECT_EQ(sink_.Noted().size(), 2U);
  Finish({3});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute and write 3:[0, 4)"));
}

TEST_F(TransformQueueTest, BatchesGetMemoryInOrderOnceItIsFree) {
  Make({}, 1, /*memory_batches=*/1);
  TakeTheFirst();
  Add();
  Add();
  EXPECT_THAT(sink_.Noted(), IsEmpty());
  held_.clear();
  queue_->Advance();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute and write 1:[0, 4)"));
  Finish({3});
  EXPECT_EQ(Take(), 1U);
  EXPECT_FALSE(held_.back()->beyond_budget);
}

TEST_F(TransformQueueTest, AConsumerThatWaitsGetsTheOldestBatchBeyondTheLimit) {
  Make({}, 1, /*memory_batches=*/1);
  TakeTheFirst();
  Add();
  Add();
  queue_->SetAwaited(true);
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute and write 1:[0, 4)"));
  queue_->SetAwaited(false);
  Finish({3});
  EXPECT_EQ(Take(), 1U);
  EXPECT_TRUE(held_.back()->beyond_budget);
  queue_->Advance();
  EXPECT_THAT(sink_.Noted(), IsEmpty()) << "nobody waits for it";
}

TEST_F(TransformQueueTest, ABatchWhoseSizeIsUnknownHoldsUpTheMemoryOfThoseAfterIt) {
  Make({.ragged = RaggedRows::kPad}, 2);
  Add();
  Add();
  EXPECT_EQ(sink_.Noted().size(), 4U);
  ReplyShaped({1, 2, 3});
  EXPECT_THAT(sink_.Noted(),
              ElementsAre("0: compute 1:[0, 1)", "1: compute 1:[1, 2)", "0: compute 1:[2, 3)"));
  ReplyShaped({5, 6, 7}, /*items=*/3);
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute 1:[3, 4)"));
  ReplyShaped({8});
  EXPECT_THAT(sink_.Noted(), IsEmpty());
  ReplyShaped({4});
  EXPECT_EQ(sink_.Noted().size(), 2 * kRows) << "both are written now";
}

TEST_F(TransformQueueTest, ATaskOfWholeBatchesIsABatch) {
  Make({.whole_batches = true}, 1);
  Add();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute whole 0:[0, 4)"));
  WorkerReply reply{.kind = ReplyMessage::kShaped};
  reply.shapes = {.rows = 1, .leaves = {{.item_bytes = 8, .rank = 1, .dims = {kRows}}}};
  Reply(1, std::move(reply));
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: write 0:[0, 4)"));
  Finish({1});
  EXPECT_EQ(Take(), 0U);
  Add();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute whole 1:[0, 4)")) << "of any shape";
}

TEST_F(TransformQueueTest, RowsThatAreUnlikeMakeItsBatchAndThoseAfterItOneTask) {
  Make({.ragged = RaggedRows::kWhole}, 1);
  TakeTheFirst();
  Add();
  Add();
  EXPECT_THAT(sink_.Noted(),
              ElementsAre("0: compute and write 1:[0, 4)", "0: compute and write 2:[0, 4)"));
  Reply(3, {.kind = ReplyMessage::kUnlike});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute whole 1:[0, 4)"));
  Finish({4});
  WorkerReply reply{.kind = ReplyMessage::kShaped};
  reply.shapes = {.rows = 1, .leaves = {{.item_bytes = 8, .rank = 1, .dims = {kRows}}}};
  Reply(5, std::move(reply));
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: write 1:[0, 4)"));
  Finish({5});
  EXPECT_EQ(Take(), 1U);
  EXPECT_EQ(Take(), 2U);
  Add();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute whole 3:[0, 4)"));
}

TEST_F(TransformQueueTest, ResultsOfAPartAreForgottenIfItsBatchIsComputedAgain) {
  Make({.ragged = RaggedRows::kWhole}, 1);
  Add();
  ReplyShaped({1});
  sink_.Noted();
  Reply(2, {.kind = ReplyMessage::kUnlike});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: forget 1", "0: compute whole 0:[0, 4)"));
}

TEST_F(TransformQueueTest, WhereOrderDoesNotMatterWhatIsCompleteIsTaken) {
  Make({.in_order = false}, 1);
  TakeTheFirst();
  Add();
  Add();
  EXPECT_FALSE(queue_->is_ready());
  Finish({4});
  EXPECT_EQ(Take(), 2U);
  EXPECT_FALSE(queue_->is_ready());
  Finish({3});
  EXPECT_EQ(Take(), 1U);
}

TEST_F(TransformQueueTest, WithoutALimitNoBatchWaitsForTheMemoryOfAnother) {
  Make({.whole_batches = true}, 2, /*memory_batches=*/std::nullopt);
  Add();
  EXPECT_TRUE(queue_->has_room());
  Add();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute whole 0:[0, 4)", "1: compute whole 1:[0, 4)"));
  WorkerReply reply{.kind = ReplyMessage::kShaped};
  reply.shapes = {.rows = 1, .leaves = {{.item_bytes = 8, .rank = 1, .dims = {kRows}}}};
  Reply(2, std::move(reply));
  EXPECT_THAT(sink_.Noted(), ElementsAre("1: write 1:[0, 4)"));
}

TEST_F(TransformQueueTest, AFailedBatchComesInItsPlaceAndItsResultsAreForgotten) {
  Make({}, 1);
  Add();
  ReplyShaped({1});
  sink_.Noted();
  Reply(2, {.kind = ReplyMessage::kError, .slot = 2, .text = "bad"});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: forget 1"));
  ASSERT_TRUE(queue_->is_ready());
  const TransformTaken taken = queue_->Take();
  EXPECT_EQ(taken.batch, nullptr);
  EXPECT_EQ(taken.failure.value().text, "bad");
  EXPECT_EQ(queue_->stats().batches, 0U);
  EXPECT_FALSE(queue_->loss().has_value());
}

TEST_F(TransformQueueTest, ABatchFailsForWhichTheSystemHasNoMemory) {
  Make({}, 1);
  Add();
  ReplyShaped({1});
  sink_.Noted();
  {
    const NoMemory no_memory;
    ReplyShaped({2});
  }
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: forget 1", "0: forget 2"));
  ASSERT_TRUE(queue_->is_ready());
  EXPECT_EQ(queue_->Take().failure.value().kind, TransformFailure::Kind::kShape);
}

TEST_F(TransformQueueTest, ABatchThatFailsBeforeItIsComputedIsSentToNobody) {
  Make({}, 1, /*memory_batches=*/1);
  TakeTheFirst();
  Add();
  {
    const NoMemory no_memory;
    queue_->SetAwaited(true);
  }
  EXPECT_THAT(sink_.Noted(), IsEmpty());
  ASSERT_TRUE(queue_->is_ready());
  const TransformFailure failure = queue_->Take().failure.value();
  EXPECT_EQ(failure.text, "the system has no memory for a batch of 32 bytes");
  EXPECT_EQ(failure.tasks[0].step, 1U);
  EXPECT_EQ(failure.tasks[0].samples.size(), 1U);
}

TEST_F(TransformQueueTest, ResultsOfBatchesThatAreClearedAreForgottenNowOrWhenTheyCome) {
  Make({}, 1);
  const std::weak_ptr<Batch> in = Add();
  ReplyShaped({1});
  sink_.Noted();
  queue_->Clear();
  EXPECT_TRUE(queue_->empty());
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: forget 1"));
  EXPECT_FALSE(in.expired()) << "the worker may read it";
  ReplyShaped({2});
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: forget 2"));
  EXPECT_TRUE(in.expired());
  EXPECT_FALSE(queue_->loss().has_value());
}

TEST_F(TransformQueueTest, MemoryIsKeptUntilWorkersHaveWrittenWhatIsCleared) {
  Make({}, 1);
  Add();
  ReplyShaped({1, 2});
  sink_.Noted();
  queue_->Clear();
  EXPECT_THAT(sink_.Noted(), IsEmpty());
  Finish({1});
  EXPECT_GT(queue_->stats().memory.used_bytes, 0U);
  Finish({2});
  EXPECT_EQ(queue_->stats().memory.used_bytes, 0U);
}

TEST_F(TransformQueueTest, AWorkerThatAnswersWhatItWasNotAskedIsLost) {
  Make({}, 2);
  Add();
  sink_.Noted();
  queue_->OnReply(1, {.kind = ReplyMessage::kDone, .task = 1});
  EXPECT_THAT(sink_.Noted(), ElementsAre("1: close"));
  EXPECT_TRUE(queue_->is_lost(1));
  EXPECT_FALSE(queue_->is_lost(0));
  EXPECT_EQ(queue_->loss().value().kind, TransformFailure::Kind::kWorkerLost);
  EXPECT_EQ(queue_->loss().value().text, "it answered what it was not asked");
  EXPECT_EQ(queue_->loss().value().tasks.size(), 2U);
}

TEST_F(TransformQueueTest, AWorkerThatIsDoneUnaskedWithWhatItBuffersIsLost) {
  Make({}, 1);
  Add();
  ReplyShaped({1});
  Finish({1});
  ASSERT_TRUE(queue_->is_lost(0));
  EXPECT_EQ(queue_->loss().value().text, "it answered what it was not asked");
  EXPECT_FALSE(queue_->is_ready()) << "task 2 is not answered";
}

TEST_F(TransformQueueTest, AWorkerThatIsDoneWithWhatHasNoMemoryIsLost) {
  Make({}, 1);
  Add();
  Finish({1, 2});
  EXPECT_EQ(queue_->loss().value().text, "it answered what it was not asked");
  EXPECT_FALSE(queue_->is_ready()) << "a batch without its bytes";
}

TEST_F(TransformQueueTest, AWorkerThatAnswersForOtherRowsIsLost) {
  Make({}, 1);
  Add();
  WorkerReply reply{.kind = ReplyMessage::kShaped};
  reply.shapes.rows = kRows;
  Reply(1, std::move(reply));
  EXPECT_EQ(queue_->loss().value().text, "it answered for other rows than it was asked for");
}

TEST_F(TransformQueueTest, AWorkerThatCouldNotStartIsLost) {
  Make({}, 1);
  queue_->OnReply(0, {.kind = ReplyMessage::kFailed, .text = "no module", .pickle = "p"});
  EXPECT_EQ(queue_->loss().value().kind, TransformFailure::Kind::kStart);
  EXPECT_EQ(queue_->loss().value().text, "no module");
  EXPECT_EQ(queue_->loss().value().pickle, "p");
}

const Status& NoDescriptor() {
  static const Status status(StatusCode::kResourceExhausted, "no descriptor");
  return status;
}

TEST_F(TransformQueueTest, AWorkerWhoseTaskCannotBeSentIsLost) {
  Make({}, 1);
  sink_.result = NoDescriptor();
  changes_ = 0;
  Add();
  EXPECT_THAT(sink_.Noted(), ElementsAre("0: compute 0:[0, 2)", "0: close"));
  ASSERT_TRUE(queue_->loss().has_value());
  EXPECT_EQ(queue_->loss()->kind, TransformFailure::Kind::kWorkerLost);
  EXPECT_EQ(queue_->loss()->text, "no descriptor");
  EXPECT_EQ(queue_->loss()->tasks.size(), 1U);
  EXPECT_GT(changes_, 0) << "the consumer waits";
}

TEST_F(TransformQueueTest, AWorkerThatCannotBeToldToWriteIsLost) {
  Make({}, 1);
  Add();
  sink_.result = NoDescriptor();
  ReplyShaped({1, 2});
  EXPECT_THAT(sink_.Noted(), Contains("0: close"));
  EXPECT_EQ(queue_->loss().value().text, "no descriptor");
}

TEST_F(TransformQueueTest, AWorkerThatCannotBeToldToForgetIsLost) {
  Make({}, 1);
  Add();
  ReplyShaped({1});
  sink_.result = NoDescriptor();
  queue_->Clear();
  EXPECT_THAT(sink_.Noted(), Contains("0: close"));
  EXPECT_EQ(queue_->loss().value().text, "no descriptor");
}

TEST_F(TransformQueueTest, AWorkerThatIsGoneWhenItsTaskIsSentIsLeftToItsReceiver) {
  Make({}, 1);
  sink_.result = Status(StatusCode::kUnavailable, "closed");
  Add();
  EXPECT_FALSE(queue_->loss().has_value());
  EXPECT_THAT(sink_.Noted(), Not(Contains("0: close")));
}

TEST_F(TransformQueueTest, WhoWaitsIsToldOfMemoryBatchesAndTheFirstLoss) {
  Make({}, 2);
  const auto changed = [this] { return std::exchange(changes_, 0) > 0; };
  Add();
  ReplyShaped({1, 2, 3});
  EXPECT_FALSE(changed());
  ReplyShaped({4});
  EXPECT_TRUE(changed()) << "the size is known: there may be room";
  Finish({1, 2, 3});
  EXPECT_FALSE(changed());
  Finish({4});
  EXPECT_TRUE(changed()) << "complete";
  Take();
  EXPECT_TRUE(changed()) << "there is room";
  queue_->Lose(0, {});
  EXPECT_TRUE(changed());
  queue_->Lose(1, {});
  EXPECT_FALSE(changed());
}

}  // namespace
}  // namespace headrace
