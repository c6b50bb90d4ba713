// The engine while a step is being planned, which may take seconds where an epoch begins.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/testing/test_executor.h"
#include "base/units.h"
#include "codec/bytes_codec.h"
#include "engine/engine.h"
#include "engine/testing/block_plan.h"
#include "engine/testing/loop_harness.h"
#include "gtest/gtest.h"
#include "index/testing/table_index.h"
#include "store/memory_store.h"
#include "tier/ram_tier.h"
#include "tier/testing/manual_executor.h"

namespace headrace {
namespace {

// A planner is inside from Enter() to Open().
class PlanGate {
 public:
  void Enter() {
    MutexLock lock(mutex_);
    entered_ = true;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
  }
  void AwaitPlanner() {
    MutexLock lock(mutex_);
    while (!entered_) changed_.Wait(mutex_);
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool entered_ HEADRACE_GUARDED_BY(mutex_) = false;
  bool open_ HEADRACE_GUARDED_BY(mutex_) = false;
};

// The steps of a plan, the second of them behind a gate.
template <typename Plan, typename StepOfPlan>
class Gated final : public Plan {
 public:
  Gated(std::vector<StepOfPlan> steps, PlanGate* gate) : steps_(std::move(steps)), gate_(gate) {}

  std::optional<StepOfPlan> Next() override {
    if (next_ == 1 && gate_ != nullptr) gate_->Enter();
    if (next_ == steps_.size()) return std::nullopt;
    return steps_[next_++];
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  std::vector<StepOfPlan> steps_;
  PlanGate* gate_;  // null: none
  std::size_t next_ = 0;
};

class TakenBatches final : public BatchSink {
 public:
  void OnBatch(std::shared_ptr<Batch> batch) override {
    MutexLock lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  void OnEnd(Status status) override {
    MutexLock lock(mutex_);
    end_ = std::move(status);
    changed_.NotifyAll();
  }
  std::vector<std::shared_ptr<Batch>> AwaitEnd() {
    MutexLock lock(mutex_);
    while (!end_.has_value()) changed_.Wait(mutex_);
    EXPECT_TRUE(end_->ok()) << end_->ToString();
    return batches_;
  }
  std::size_t count() {
    MutexLock lock(mutex_);
    return batches_.size();
  }
  const Batch& batch(std::size_t number) {
    MutexLock lock(mutex_);
    return *batches_.at(number);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Batch>> batches_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Status> end_ HEADRACE_GUARDED_BY(mutex_);
};

enum class SlowPlan { kOrder, kPlacement };

// Two epochs of one step, of two samples each. Planning the second waits for the gate.
class EnginePlanningTest : public ::testing::TestWithParam<SlowPlan> {
 protected:
  EnginePlanningTest() {
    index_.samples = 4;
    index_.objects = {"zero and one, two and three"};
    index_.columns.resize(1);
    index_.columns[0].info.name = "bytes";
    index_.columns[0].extents = {{ObjectId{0}, {0, 4}},
                                 {ObjectId{0}, {9, 3}},
                                 {ObjectId{0}, {14, 3}},
                                 {ObjectId{0}, {22, 5}}};
    index_.infos.push_back(index_.columns[0].info);
    schema_.push_back({.name = "bytes", .codec = MakeBytesCodec(), .ragged = true});
    store_ = std::make_unique<MemoryStore>(
        std::unordered_map<ObjectId, std::string>{{ObjectId{0}, index_.objects[0]}});
    tier_ = RamTier::Make(4 * kKiB, 64).value();
    std::vector<Step> steps(2);
    std::vector<PlacedStep> placed(2);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      steps[epoch] = {.epoch = epoch, .ends_epoch = true};
      steps[epoch].deliveries = {{.sample = SampleId{2 * epoch + 1}, .slot = 0},
                                 {.sample = SampleId{2 * epoch}, .slot = 1}};
      placed[epoch].at = {.epoch = epoch};
    }
    const bool slow_order = GetParam() == SlowPlan::kOrder;
    auto blocks = MakeIndexBlocks(std::shared_ptr<const Index>(&index_, [](const Index*) {}), 1);
    auto tiers = std::make_unique<TierCache>(
        std::vector<Tier*>{tier_.get()}, blocks.value(),
        std::make_unique<Gated<Placement, PlacedStep>>(placed, slow_order ? nullptr : &gate_),
        std::vector<std::vector<std::uint32_t>>{});
    engine_ = std::make_unique<Engine>(
        Engine::Parts{.index = &index_,
                      .schema = schema_,
                      .store = store_.get(),
                      .executor = &executor_,
                      .clock = &clock_,
                      .lanes = {{.sink = &sink_, .batch_memory = BufferPool::Make(kMiB)}},
                      .staging = BufferPool::Make(kMiB)},
        EngineOptions{.verify = false},
        std::make_unique<Gated<Order, Step>>(steps, slow_order ? &gate_ : nullptr),
        std::move(tiers));
    engine_->Start();
    gate_.AwaitPlanner();
  }

  TableIndex index_;
  std::vector<BatchField> schema_;
  std::unique_ptr<MemoryStore> store_;
  std::unique_ptr<RamTier> tier_;
  MonotonicClock clock_;
  PlanGate gate_;
  TakenBatches sink_;
  TestExecutor executor_{2};
  std::unique_ptr<Engine> engine_;
};

TEST_P(EnginePlanningTest, StatisticsDoNotWaitForTheNextEpochToBePlanned) {
  EXPECT_EQ(engine_->stats().steps_in_work, 1U);
  gate_.Open();
  const std::vector<std::shared_ptr<Batch>> batches = sink_.AwaitEnd();
  std::vector<std::string> rows;
  for (const std::shared_ptr<Batch>& batch : batches) {
    for (std::size_t slot = 0; slot < batch->samples.size(); ++slot) {
      const std::span<std::byte> row = batch->row(schema_, 0, slot);
      rows.emplace_back(reinterpret_cast<const char*>(row.data()), row.size());
    }
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"one", "zero", "three", "two"}));
  engine_->Close();
}

TEST_P(EnginePlanningTest, StopDoesNotWaitForTheNextEpochToBePlannedAndClosingDoes) {
  engine_->Stop();
  EXPECT_FALSE(engine_->Close(0));
  gate_.Open();
  EXPECT_TRUE(engine_->Close());
  EXPECT_EQ(engine_->stats().steps_in_work, 1U) << "a step was admitted after Stop()";
  EXPECT_EQ(sink_.count(), 0U);
}

// Steps of two samples each, whose planning takes ten seconds of a clock.
class SlowOrder final : public Order {
 public:
  SlowOrder(std::uint64_t steps, LoopHarness::FakeClock& clock) : steps_(steps), clock_(clock) {}

  std::optional<Step> Next() override {
    if (next_ == steps_) return std::nullopt;
    clock_.now_ns += 10 * kNsPerSecond;
    Step step{.step = next_++};
    step.deliveries = {{.sample = SampleId{0}, .slot = 0}, {.sample = SampleId{1}, .slot = 1}};
    return step;
  }
  [[nodiscard]] std::uint64_t planned() const { return next_; }

 private:
  const std::uint64_t steps_;
  LoopHarness::FakeClock& clock_;
  std::uint64_t next_ = 0;
};

// One lane, and an executor that runs tasks when told.
class SlowOrderTest : public ::testing::Test {
 protected:
  SlowOrderTest() {
    auto order = std::make_unique<SlowOrder>(/*steps=*/3, test_.clock);
    order_ = order.get();
    store_ = std::make_unique<MemoryStore>(
        std::unordered_map<ObjectId, std::string>{{ObjectId{0}, test_.index.objects[0]}});
    engine_ = std::make_unique<Engine>(
        Engine::Parts{.index = &test_.index,
                      .schema = test_.schema,
                      .store = store_.get(),
                      .executor = &executor_,
                      .clock = &test_.clock,
                      .lanes = {{.sink = &sink_, .batch_memory = BufferPool::Make(kMiB)}},
                      .staging = BufferPool::Make(kMiB)},
        EngineOptions{.batches_max = 1}, std::move(order));
    engine_->Start();
    executor_.RunAll();
  }
  void TearDown() override {
    engine_->Stop();
    executor_.RunAll();
    engine_->Close();
  }

  LoopHarness test_;
  std::unique_ptr<MemoryStore> store_;
  TakenBatches sink_;
  ManualExecutor executor_;
  SlowOrder* order_ = nullptr;  // the engine's
  std::unique_ptr<Engine> engine_;
};

TEST_F(SlowOrderTest, TheTimeThatAStepWasPlannedForIsNoTimeOfItsBatch) {
  ASSERT_EQ(sink_.count(), 1U);
  const BatchTimes times = sink_.batch(0).times;
  EXPECT_EQ(times.admitted_ns, 10 * kNsPerSecond);
  EXPECT_EQ(times.busy_ns, 0);
}

TEST_F(SlowOrderTest, WhoWaitsForABatchPlansNoStepButTheExecutorDoes) {
  ASSERT_EQ(sink_.count(), 1U);
  EXPECT_EQ(order_->planned(), 1U);
  engine_->OnTaken();
  engine_->OnWaiting();  // Handles both on this thread: there is room for a step.
  EXPECT_EQ(order_->planned(), 1U);
  executor_.RunAll();
  EXPECT_EQ(order_->planned(), 2U);
  EXPECT_EQ(sink_.count(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Planners, EnginePlanningTest,
                         ::testing::Values(SlowPlan::kOrder, SlowPlan::kPlacement));

}  // namespace
}  // namespace headrace
