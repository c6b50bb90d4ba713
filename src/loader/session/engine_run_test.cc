#include "loader/session/engine_run.h"

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.h"
#include "engine/testing/loop_harness.h"
#include "gtest/gtest.h"
#include "plan/exact_order.h"
#include "store/memory_store.h"
#include "tier/testing/manual_executor.h"

namespace headrace {
namespace {

struct CountingSink final : BatchSink {
  void OnBatch(std::shared_ptr<Batch> batch) override { newest = std::move(batch); }
  void OnEnd(Status /*status*/) override {}
  std::shared_ptr<Batch> newest;
};

// A consumer may be inside the run for long: its time is not the time of who closes the run.
TEST(EngineRunTest, CloseWaitsForCallsInProgressNoLongerThanItsTimeout) {
  LoopHarness test;
  MemoryStore store(
      std::unordered_map<ObjectId, std::string>{{ObjectId{0}, test.index.objects[0]}});
  CountingSink sink;
  ManualExecutor executor;
  const MonotonicClock clock;
  EngineRun* self = nullptr;
  std::optional<bool> closed_inside;
  EngineRun run({.index = &test.index,
                 .schema = test.schema,
                 .store = &store,
                 .executor = &executor,
                 .clock = &clock,
                 .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                 .staging = BufferPool::Make(kMiB)},
                {}, MakeExactOrder({.sample_count = 8, .batch_size = 4}, {}).value(), nullptr,
                [&](std::uint32_t, const Batch&, std::int64_t) { closed_inside = self->Close(0); });
  self = &run;
  executor.RunAll();
  ASSERT_NE(sink.newest, nullptr);
  run.OnTaken(0, *sink.newest, clock.NowNanos());
  EXPECT_EQ(closed_inside, false);
  executor.RunAll();
  EXPECT_TRUE(run.Close(0));
}

// What other nodes ask for.
TEST(EngineRunTest, ARunWithoutTiersAndOneThatHasEndedGiveNothing) {
  LoopHarness test;
  MemoryStore store({});
  CountingSink sink;
  ManualExecutor executor;
  const MonotonicClock clock;
  EngineRun run({.index = &test.index,
                 .schema = test.schema,
                 .store = &store,
                 .executor = &executor,
                 .clock = &clock,
                 .lanes = {{.sink = &sink, .batch_memory = BufferPool::Make(kMiB)}},
                 .staging = BufferPool::Make(kMiB)},
                {}, MakeExactOrder({.sample_count = 8, .batch_size = 4}, {}).value(), nullptr,
                [](std::uint32_t, const Batch&, std::int64_t) {});
  std::vector<std::string> said;
  const auto bring = [&] {
    run.Bring(SampleId{3}, 0, [&](const Result<Tier::EntryRef>& entry) {
      said.push_back(entry.status().ToString());
    });
  };
  bring();
  executor.RunAll();
  EXPECT_TRUE(run.Close(-1));
  bring();
  run.TakeParcel(1, {.count = 1}, [&](const Result<OwnedBytes>& bytes) {
    said.push_back(bytes.status().ToString());
  });
  EXPECT_EQ(said, (std::vector<std::string>{
                      "NotFound: bringing sample 3 into a tier: the run has no tiers",
                      "Unavailable: the run of this node has ended",
                      "Unavailable: the run of this node has ended"}));
}

}  // namespace
}  // namespace headrace
