#include "workers/worker_tasks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace headrace {
namespace {

std::shared_ptr<BatchWork> WorkOf(std::uint64_t rows) {
  auto batch = std::make_shared<Batch>();
  for (std::uint64_t i = 0; i < rows; ++i) batch->samples.push_back(SampleId{10 + i});
  return std::make_shared<BatchWork>(std::move(batch), 1);
}

class WorkerTasksTest : public ::testing::Test {
 protected:
  // Its number.
  std::uint64_t Assign(std::size_t worker) {
    const WorkerTasks::Held held{work_, work_->NextTask()};
    tasks_.Assign(worker, held);
    EXPECT_EQ(held.task->worker, worker);
    return held.task->number;
  }

  std::shared_ptr<BatchWork> work_ = WorkOf(20);
  WorkerTasks tasks_{3};
};

TEST_F(WorkerTasksTest, AWorkerGetsTasksOnceItIsReady) {
  EXPECT_EQ(tasks_.IdleWorker(), std::nullopt);
  tasks_.SetReady(2, 1);
  EXPECT_EQ(tasks_.IdleWorker(), 2U);
}

TEST_F(WorkerTasksTest, TheWorkerWithTheFewestTasksIsNextAndNoneHasMoreThanTwo) {
  for (std::size_t i = 0; i < 3; ++i) tasks_.SetReady(i, 1);
  std::vector<std::size_t> order;
  while (const auto worker = tasks_.IdleWorker()) {
    order.push_back(*worker);
    Assign(*worker);
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2}));
}

TEST_F(WorkerTasksTest, AWorkerOfSeveralThreadsHasATaskForEachAndOneMore) {
  tasks_.SetReady(1, 3);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(tasks_.IdleWorker(), 1U);
    EXPECT_FALSE(i == 0 && tasks_.is_busy());
    Assign(1);
  }
  EXPECT_EQ(tasks_.IdleWorker(), std::nullopt);
  EXPECT_TRUE(tasks_.is_busy());
  EXPECT_EQ(tasks_.threads(), 5U);
  EXPECT_EQ(tasks_.TaskRows(20), 2U) << "two tasks for each thread";
  for (std::uint64_t number = 1; number <= 3; ++number) {
    EXPECT_TRUE(tasks_.Answer(1, number).has_value());
  }
  EXPECT_TRUE(tasks_.is_busy());
  tasks_.Lose(1, {});
  EXPECT_FALSE(tasks_.is_busy()) << "it will never answer";
}

TEST(WorkerTasksOfThreadsTest, BatchesAreDividedForThemBeforeTheySayTheyAreReady) {
  const WorkerTasks tasks(2, 8);
  EXPECT_EQ(tasks.threads(), 16U);
  EXPECT_EQ(tasks.TaskRows(64), 2U);
}

TEST(WorkerTasksOfThreadsTest, AWorkerHasNoMoreTasksThanItsSocketTakes) {
  WorkerTasks tasks(1, 1000);
  tasks.SetReady(0, 1000);
  const std::shared_ptr<BatchWork> work = WorkOf(500);
  std::size_t count = 0;
  for (; tasks.IdleWorker().has_value(); ++count) tasks.Assign(0, {work, work->NextTask()});
  EXPECT_EQ(count, WorkerTasks::kTasksMax);
}

TEST_F(WorkerTasksTest, AWorkerThatHasAnsweredMayHaveAnother) {
  tasks_.SetReady(0, 1);
  Assign(0);
  const std::uint64_t number = Assign(0);
  EXPECT_EQ(tasks_.IdleWorker(), std::nullopt);
  const std::optional<WorkerTasks::Held> held = tasks_.Answer(0, number);
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->work, work_);
  EXPECT_EQ(held->task->first, 1U);
  EXPECT_EQ(tasks_.IdleWorker(), 0U);
}

TEST_F(WorkerTasksTest, AWorkerAnswersForItsOwnTasksUntilTheyAreReleased) {
  tasks_.SetReady(0, 1);
  const std::uint64_t number = Assign(0);
  EXPECT_FALSE(tasks_.Answer(1, number).has_value());
  EXPECT_FALSE(tasks_.Answer(0, number + 1).has_value());
  EXPECT_TRUE(tasks_.Answer(0, number).has_value());
  EXPECT_TRUE(tasks_.Answer(0, number).has_value())
      << "it buffered the results, and has written them";
  tasks_.Release(number);
  EXPECT_FALSE(tasks_.Answer(0, number).has_value());
}

TEST_F(WorkerTasksTest, ABatchLivesAsLongAsAWorkerMayUseItsMemory) {
  const std::uint64_t number = Assign(0);
  const std::weak_ptr<BatchWork> work = std::exchange(work_, nullptr);
  EXPECT_TRUE(tasks_.Answer(0, number).has_value());
  EXPECT_FALSE(work.expired());
  tasks_.Release(number);
  EXPECT_TRUE(work.expired());
}

TEST_F(WorkerTasksTest, AWorkerThatIsLostIsNamedWithWhatItHadToDoTheOldestFirst) {
  for (std::size_t i = 0; i < 3; ++i) tasks_.SetReady(i, 1);
  const std::uint64_t first = Assign(1);
  Assign(1);
  Assign(1);
  Assign(0);
  EXPECT_TRUE(tasks_.Answer(1, first).has_value());
  tasks_.Lose(1, {.kind = TransformFailure::Kind::kWorkerLost, .text = "why"});
  EXPECT_TRUE(tasks_.is_lost(1));
  EXPECT_FALSE(tasks_.is_lost(0));
  const TransformFailure& loss = tasks_.loss().value();
  EXPECT_EQ(loss.kind, TransformFailure::Kind::kWorkerLost);
  EXPECT_EQ(loss.worker, 1U);
  EXPECT_EQ(loss.text, "why");
  ASSERT_EQ(loss.tasks.size(), 2U);
  EXPECT_EQ(loss.tasks[0].first_slot, 1U);
  EXPECT_EQ(loss.tasks[0].samples, std::vector<SampleId>{SampleId{11}});
  EXPECT_EQ(loss.tasks[1].first_slot, 2U);
}

TEST_F(WorkerTasksTest, AWorkerThatIsLostBeforeItWasReadyCouldNotStart) {
  tasks_.Lose(2, {.kind = TransformFailure::Kind::kWorkerLost});
  EXPECT_EQ(tasks_.loss().value().kind, TransformFailure::Kind::kStart);
}

TEST_F(WorkerTasksTest, OfLossesTheFirstCountsAndNoneGetsTasks) {
  for (std::size_t i = 0; i < 3; ++i) tasks_.SetReady(i, 1);
  tasks_.Lose(1, {.text = "first"});
  tasks_.Lose(0, {.text = "second"});
  EXPECT_EQ(tasks_.loss().value().text, "first");
  EXPECT_TRUE(tasks_.is_lost(0));
  EXPECT_EQ(tasks_.IdleWorker(), 2U);
}

TEST_F(WorkerTasksTest, TasksTakeAboutTheTimeThatTheyShould) {
  EXPECT_EQ(tasks_.TaskRows(600), 100U) << "two for each worker: nothing is known yet";
  EXPECT_EQ(tasks_.TaskRows(1), 1U);
  tasks_.Learn(10, 10 * WorkerTasks::kTaskNs / 50);
  EXPECT_EQ(tasks_.TaskRows(600), 50U);
  EXPECT_EQ(tasks_.TaskRows(60), 20U) << "every worker has a part of the batch";
  EXPECT_EQ(tasks_.TaskRows(6000), 250U) << "no more than eight for each worker";
  tasks_.Learn(1, 9 * WorkerTasks::kTaskNs / 50);  // (7 + 9) / 8 of what it was.
  EXPECT_EQ(tasks_.TaskRows(300), 25U);
}

TEST_F(WorkerTasksTest, RowsThatTakeNoTimeMakeLargeTasks) {
  tasks_.Learn(1000, 1);
  EXPECT_EQ(tasks_.TaskRows(600), 200U);
}

}  // namespace
}  // namespace headrace
