// Lobster offline, from an order and a placement to the threads of every lane: plan/ and model/
// together, which do not know each other.

#include <algorithm>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"
#include "model/lane_shares.h"
#include "papers/lobster/lobster_policy.h"
#include "papers/lobster/make_schedule.h"
#include "papers/lobster/testing/schedule_bytes.h"
#include "plan/order.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr double kMB = 1e6;
constexpr std::uint32_t kScheduledLanes = 8;
constexpr std::uint64_t kDatasetSamples = 8192;
constexpr std::uint64_t kLaneBatch = 16;  // of a lane
constexpr int kLoadingThreads = 32;

// Every lane of a node: the epoch's permutation, dealt out. Half of the samples lie in a tier.
class NodeOrder : public Order {
 public:
  std::optional<Step> Next() override {
    if ((step_ + 1) * kLaneBatch * kScheduledLanes > kDatasetSamples) return std::nullopt;
    Step step{.step = step_};
    for (std::uint32_t lane = 0; lane < kScheduledLanes; ++lane) {
      for (std::uint32_t slot = 0; slot < kLaneBatch; ++slot) {
        const std::uint64_t position = (step_ * kLaneBatch + slot) * kScheduledLanes + lane;
        step.deliveries.push_back(
            {.sample = SampleId{permutation_.At(position)}, .rank = lane, .slot = slot});
      }
    }
    ++step_;
    return step;
  }

 private:
  Permutation permutation_{kDatasetSamples, 7, 0, RandomStream::kOrder};
  std::uint64_t step_ = 0;
};

class HalfInATier : public Placement {
 public:
  std::optional<PlacedStep> Next() override {
    const auto step = order_.Next();
    if (!step) return std::nullopt;
    PlacedStep placed{.at = {.epoch = step->epoch, .step = step->step}};
    for (const Delivery& delivery : step->deliveries) {
      const auto block = static_cast<std::uint32_t>(Raw(delivery.sample));
      placed.uses.push_back({.block = block, .tier = block % 2 == 0 ? TierNumber{0} : kNoTier});
    }
    return placed;
  }
  [[nodiscard]] std::map<std::string, double> counters() const override { return {}; }

 private:
  NodeOrder order_;
};

std::vector<LaneLoad> LoadsOf(std::span<const LaneDemand> demand) {
  std::vector<LaneLoad> lanes;
  for (const LaneDemand& lane : demand) {
    lanes.push_back({.requests = lane.samples,
                     .local_bytes = lane.tier_bytes,
                     .remote_bytes = lane.peer_bytes,
                     .storage_bytes = lane.storage_bytes});
  }
  return lanes;
}

LoadModel Model() {
  LoadRates rates;
  rates.local[0] = Curve::Make({{1, 4000 * kMB}, {8, 16000 * kMB}}).value();
  rates.storage = Curve::Make({{1, 20 * kMB}, {32, 640 * kMB}}).value();
  return LoadModel(rates, kLoadingThreads);
}

TEST(LobsterScheduleTest, FewerStepsAreImbalancedThanWithEqualShares) {
  const LoadModel model = Model();
  const LaneShares equal(kScheduledLanes, kLoadingThreads / static_cast<int>(kScheduledLanes));
  constexpr double kTrain = 0.02;
  int imbalanced = 0;
  int imbalanced_equal = 0;
  double seconds = 0;
  double seconds_equal = 0;
  NodeOrder order;
  HalfInATier placement;
  const auto blocks = MakeUniformBlocks(kDatasetSamples, 1);
  ScheduleRequest request{.header = {.world_size = kScheduledLanes,
                                     .lanes = kScheduledLanes,
                                     .loading_threads = kLoadingThreads,
                                     .decode_threads = kScheduledLanes},
                          .order = &order,
                          .placement = &placement,
                          .blocks = blocks.get()};
  // Sizes of a heavy tail, as of photographs.
  request.sample_bytes = [](SampleId sample) {
    Prng random(1, 0, RandomStream::kOrder, Raw(sample));
    const double u = random.Uniform();
    return static_cast<std::uint64_t>(20'000 + 500'000 * u * u * u * u);
  };
  request.threads = [&](std::span<const LaneDemand> demand) {
    const std::vector<LaneLoad> lanes = LoadsOf(demand);
    const LobsterDecision decision =
        LobsterShares(lanes, model, kLoadingThreads, {.train_seconds = kTrain});
    const auto with = SecondsOfLanes(lanes, model, decision.shares);
    const auto without = SecondsOfLanes(lanes, model, equal);
    imbalanced += IsImbalanced(with, kTrain, 0.5) ? 1 : 0;
    imbalanced_equal += IsImbalanced(without, kTrain, 0.5) ? 1 : 0;
    seconds += std::max(kTrain, *std::max_element(with.begin(), with.end()));
    seconds_equal += std::max(kTrain, *std::max_element(without.begin(), without.end()));
    std::vector<LaneThreads> threads;
    for (const int share : decision.shares) {
      threads.push_back({.loading = static_cast<std::uint32_t>(share), .decode = 1});
    }
    return threads;
  };
  std::vector<std::byte> file;
  const auto steps = MakeSchedule(request, Into(file));
  ASSERT_TRUE(steps.ok()) << steps.status().ToString();
  EXPECT_EQ(steps.value(), kDatasetSamples / kLaneBatch / kScheduledLanes);
  RecordProperty("imbalanced", imbalanced);
  RecordProperty("imbalanced_equal", imbalanced_equal);
  RecordProperty("speedup_percent", static_cast<int>(100 * seconds_equal / seconds));
  EXPECT_LT(imbalanced, imbalanced_equal);
  EXPECT_LT(seconds, seconds_equal);

  auto reader = ScheduleReader::Open({.bytes = file, .name = "a.schedule"});
  ASSERT_TRUE(reader.ok());
  ScheduledStep step;
  std::uint64_t read = 0;
  while (reader.value().Next(step).value()) ++read;
  EXPECT_EQ(read, steps.value());
}

}  // namespace
}  // namespace headrace
