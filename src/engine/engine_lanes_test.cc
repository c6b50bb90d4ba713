// Several ranks in one engine, in virtual time: what each gets is what it would get alone, whoever
// is late, holds batches or leaves; and how the policies share a node between ranks of which one
// has more to do.

#include <algorithm>
#include <array>
#include <string>

#include "base/prng.h"
#include "base/units.h"
#include "engine/engine.h"
#include "engine/lanes/lane_policy.h"
#include "engine/testing/lane_training.h"
#include "engine/testing/lane_world.h"
#include "gtest/gtest.h"
#include "papers/lobster/lobster_policy.h"
#include "sim/sim_executor.h"
#include "sim/sim_loop.h"
#include "sim/sim_store.h"

namespace headrace {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kLaneNodes = 600;
constexpr std::uint64_t kTrainingSeeds = 12;
#else
constexpr std::uint64_t kLaneNodes = 200;  // Slow builds look for other mistakes.
constexpr std::uint64_t kTrainingSeeds = 2;
#endif

// Lanes whose consumers come and go as a seed says.
class Node {
 public:
  explicit Node(std::uint64_t seed) : random_(seed, 0, RandomStream::kOrder, 0x1a9e) {
    lanes_ = 1 + static_cast<std::uint32_t>(random_.Below(8));
    std::vector<std::uint64_t> sizes(lanes_ + random_.Below(120));
    for (std::uint64_t& size : sizes) size = random_.Below(300);
    data_ = std::make_unique<LaneDataset>(sizes, &random_);
    order_ = {.sample_count = data_->index.samples,
              .batch_size = 1 + random_.Below(6),
              .world_size = lanes_,
              .seed = seed,
              .epochs = 1 + random_.Below(3)};
    options_.batches_max = 1 + static_cast<std::uint32_t>(random_.Below(4));
    options_.reads_in_flight_max = 1 + static_cast<std::uint32_t>(random_.Below(16));
    fixed_ = std::make_unique<FixedLanePolicy>(LaneBudget{.reads = 8, .decodes = 4});
    lobster_ = std::make_unique<LobsterLanePolicy>(
        LobsterLanePolicy::Options{.budget = {.reads = 8, .decodes = 4}});
    policy_ = std::array<LanePolicy*, 3>{nullptr, fixed_.get(), lobster_.get()}[random_.Below(3)];
  }

  void Run() {
    SimStore store(loop_, *data_->store, [this](const Extent&) {
      return SimRead{.delay_ns = static_cast<std::int64_t>(random_.Below(5 * kMs))};
    });
    SimExecutor executor(loop_, 1 + static_cast<int>(random_.Below(4)), [this](std::uint64_t) {
      return static_cast<std::int64_t>(random_.Below(kMs));
    });
    SimExecutor elsewhere(
        loop_, 1, [this](std::uint64_t) { return static_cast<std::int64_t>(random_.Below(kMs)); });
    Engine::Parts parts{.index = &data_->index,
                        .schema = data_->schema,
                        .store = &store,
                        .executor = &executor,
                        .clock = &loop_.clock(),
                        .staging = BufferPool::Make(kMiB),
                        .policy = policy_};
    models_ = OrdersOf(order_);
    sinks_.resize(lanes_);
    consumers_.resize(lanes_);
    for (SimSink& sink : sinks_) {
      const std::uint64_t bytes = random_.Below(2) == 0 ? 8192 : kMiB;
      parts.lanes.push_back({.sink = &sink, .batch_memory = BufferPool::Make(bytes)});
      if (random_.Below(3) != 0) continue;
      parts.lanes.back().staging = BufferPool::Make(random_.Below(2) == 0 ? 8192 : kMiB);
      parts.lanes.back().executor = &elsewhere;
    }
    Engine engine(parts, options_, std::make_unique<MergedOrder>(OrdersOf(order_)));
    engine.Start();
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      if (random_.Below(4) == 0) consumers_[lane].steps_until_leaving = random_.Below(10);
      Consume(engine, lane);
    }
    ASSERT_TRUE(loop_.RunUntilIdle(kEventsMax));
    if (::testing::Test::HasFatalFailure()) return;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      EXPECT_TRUE(consumers_[lane].done || consumers_[lane].left) << "lane " << lane << " is stuck";
    }
    CheckSums(engine);
    engine.Stop();
    ASSERT_TRUE(loop_.RunUntilIdle(kEventsMax));
    engine.Close();
  }

 private:
  struct Consumer {
    std::uint64_t steps_until_leaving = ~std::uint64_t{0};
    std::vector<std::shared_ptr<Batch>> held;
    bool left = false;
    bool done = false;
    LaneStats told;  // sums over its batches
  };

  void Consume(Engine& engine, std::uint32_t lane) {
    SimSink& sink = sinks_[lane];
    Consumer& consumer = consumers_[lane];
    const auto again = [this, &engine, lane] { Consume(engine, lane); };
    if (consumer.steps_until_leaving == 0) {
      consumer.left = true;
      engine.Leave(lane);
      ready_when_left_ = sink.ready.size();
      return;
    }
    if (sink.ready.empty()) {
      if (sink.end.has_value()) {
        EXPECT_TRUE(sink.end->ok()) << sink.end->ToString();
        EXPECT_FALSE(models_[lane]->Next().has_value()) << "lane " << lane << " ended early";
        consumer.done = true;
        return;
      }
      sink.wake = [this, again] { loop_.After(0, again); };
      engine.OnWaiting(lane);
      return;
    }
    const std::shared_ptr<Batch> batch = std::move(sink.ready.front());
    sink.ready.pop_front();
    engine.OnTaken(lane);
    ASSERT_NO_FATAL_FAILURE(Check(*batch, lane));
    if (random_.Below(3) == 0) consumer.held.push_back(batch);
    if (consumer.held.size() > 2) consumer.held.clear();
    --consumer.steps_until_leaving;
    loop_.After(static_cast<std::int64_t>(random_.Below(3 * kMs)), again);
  }

  void Check(const Batch& batch, std::uint32_t lane) {
    const std::optional<Step> step = models_[lane]->Next();
    ASSERT_TRUE(step.has_value());
    ASSERT_EQ(batch.epoch, step->epoch);
    ASSERT_EQ(batch.step, step->step);
    ASSERT_EQ(batch.samples.size(), step->deliveries.size());
    for (std::size_t slot = 0; slot < batch.samples.size(); ++slot) {
      ASSERT_EQ(batch.samples[slot], step->deliveries[slot].sample);
      const auto row = batch.row(data_->schema, 0, slot);
      ASSERT_EQ(std::string(reinterpret_cast<const char*>(row.data()), row.size()),
                data_->index.Payload(0, batch.samples[slot]));
    }
    ASSERT_GE(batch.times.read_ns, batch.times.admitted_ns);
    ASSERT_GE(batch.times.done_ns, batch.times.read_ns);
    ASSERT_GE(batch.times.busy_ns, 0);
    ASSERT_GE(batch.times.handed_ns, batch.times.done_ns);
    LaneStats& told = consumers_[lane].told;
    for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
      ASSERT_GE(batch.times.stall_ns[cause], 0);
      told.stall_ns[cause] += batch.times.stall_ns[cause];
    }
    told.sample_bytes += batch.times.sample_bytes;
  }

  // What batches say of themselves is what their lane counted.
  void CheckSums(const Engine& engine) const {
    const std::vector<LaneStats> lanes = engine.stats().lanes;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      if (consumers_[lane].left) continue;
      const LaneStats& told = consumers_[lane].told;
      EXPECT_EQ(told.sample_bytes, lanes[lane].sample_bytes);
      for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
        EXPECT_LE(told.stall_ns[cause], lanes[lane].stall_ns[cause]);
      }
    }
  }

  Prng random_;
  std::uint32_t lanes_ = 1;
  std::unique_ptr<LaneDataset> data_;
  OrderOptions order_;
  EngineOptions options_;
  std::unique_ptr<LanePolicy> fixed_;
  std::unique_ptr<LanePolicy> lobster_;
  LanePolicy* policy_ = nullptr;
  SimLoop loop_;
  std::vector<std::unique_ptr<Order>> models_;
  std::deque<SimSink> sinks_;
  std::vector<Consumer> consumers_;
  std::size_t ready_when_left_ = 0;
};

TEST(EngineLanesTest, EachLaneGetsWhatItWouldGetAloneWhoeverLeaves) {
  for (std::uint64_t seed = 0; seed < kLaneNodes; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Node node(seed);
    node.Run();
    if (HasFailure()) return;
  }
}

Verdict Train(const std::string& policy, Skew skew) {
  constexpr LaneBudget kBudget{.reads = 64, .decodes = kCores};
  return TrainAll(kTrainingSeeds, [&](std::uint64_t seed) {
    FixedLanePolicy fixed(kBudget);
    LobsterLanePolicy lobster({.budget = kBudget});
    LanePolicy* const chosen = policy == "fixed"     ? static_cast<LanePolicy*>(&fixed)
                               : policy == "lobster" ? static_cast<LanePolicy*>(&lobster)
                                                     : nullptr;
    return TrainSkewed(seed, skew, chosen);
  });
}

class PolicyTest : public ::testing::TestWithParam<Skew> {};

TEST_P(PolicyTest, SharedDeadlinesKeepTheLanesLevel) {
  const Skew skew = GetParam();
  const Verdict fixed = Train("fixed", skew);
  const Verdict lobster = Train("lobster", skew);
  const Verdict shared = Train("shared_deadline", skew);
  Show("fixed", fixed);
  Show("lobster", lobster);
  Show("shared_deadline", shared);
  EXPECT_GT(fixed.imbalanced, 0.5) << "the skew shows";
  EXPECT_LE(shared.imbalanced, fixed.imbalanced / 2);
  EXPECT_LE(shared.imbalanced, lobster.imbalanced);
  EXPECT_LE(shared.p50_ns, fixed.p50_ns);
  if (skew.train_ns > 10 * kMs) return;
  // With little to spare batches come one after the other, and not just in time.
  EXPECT_LE(shared.busy_imbalanced, fixed.busy_imbalanced / 2);
  EXPECT_LE(shared.busy_imbalanced, lobster.busy_imbalanced);
}

INSTANTIATE_TEST_SUITE_P(Skews, PolicyTest,
                         ::testing::Values(Skew{}, Skew{.in_decoding = true},
                                           Skew{.train_ns = 9 * kMs},
                                           Skew{.in_decoding = true, .train_ns = 9 * kMs}));

}  // namespace
}  // namespace headrace
