#include "model/epoch_prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr double kEpochMB = 1e6;

Curve EpochCurve(std::vector<Curve::Point> points) {
  return Curve::Make(std::move(points)).value();
}
SizedRates EpochRates(double rate) { return SizedRates::OfAnySize(EpochCurve({{1, rate}})); }

// Storage: 100 MB/s in reads of 0.1 MB, 400 MB/s of 1 MB, twice that with four in flight.
MachineModel MachineOfEpochs() {
  MachineModel model;
  model.storage.rate =
      SizedRates::Make(
          {{.bytes = 100'000, .rate = EpochCurve({{1, 100 * kEpochMB}, {4, 200 * kEpochMB}})},
           {.bytes = 1'000'000, .rate = EpochCurve({{1, 400 * kEpochMB}, {4, 800 * kEpochMB}})}})
          .value();
  model.tiers = {{.read = EpochRates(2000 * kEpochMB), .write = EpochRates(500 * kEpochMB)}};
  model.link = LinkModel{.rate = EpochRates(50 * kEpochMB)};
  model.decode = EpochCurve({{1, 50 * kEpochMB}, {4, 200 * kEpochMB}});
  model.copy = EpochCurve({{1, 5000 * kEpochMB}});
  return model;
}

double SecondsOf(const EpochPrediction& prediction, const std::string& name) {
  for (const ResourceSeconds& each : prediction.resources) {
    if (ResourceName(each) == name) return each.seconds;
  }
  ADD_FAILURE() << name << " has nothing to do";
  return -1;
}

EpochPrediction Predict(const EpochWork& work, const MachineModel& model = MachineOfEpochs()) {
  return PredictEpoch(model, work).value();
}

TEST(PredictEpochTest, TheEpochTakesAsLongAsTheBusiestResource) {
  EpochWork work{.samples = 10'000,
                 .storage = {{100'000, 8'000}, {1'000'000, 1'600}},
                 .tiers = {{.reads = {{100'000, 20'000}}, .writes = {{100'000, 5'000}}}},
                 .peers = {{100'000, 1'000}},
                 .decode_bytes = 2'400 * kEpochMB,
                 .demand = 1'000,
                 .threads = 4,
                 .reads_in_flight = 4};
  const EpochPrediction prediction = Predict(work);
  EXPECT_DOUBLE_EQ(SecondsOf(prediction, "storage"), 800 / 200.0 + 1600 / 800.0);
  EXPECT_DOUBLE_EQ(SecondsOf(prediction, "tier 0"), 2000 / 2000.0 + 500 / 500.0);
  EXPECT_DOUBLE_EQ(SecondsOf(prediction, "peers"), 2);
  EXPECT_DOUBLE_EQ(SecondsOf(prediction, "decode"), 12);
  EXPECT_DOUBLE_EQ(SecondsOf(prediction, "consumer"), 10);
  EXPECT_EQ(prediction.resources.size(), 5U);
  EXPECT_DOUBLE_EQ(prediction.seconds, 12);
  EXPECT_EQ(ResourceName(prediction.bound), "decode");

  work.reads_in_flight = 1;
  EXPECT_DOUBLE_EQ(SecondsOf(Predict(work), "storage"), 12);
  EXPECT_EQ(ResourceName(Predict(work).bound), "storage");  // of equals the first
  work.demand = 500;
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 20);
  EXPECT_EQ(ResourceName(Predict(work).bound), "consumer");
}

TEST(PredictEpochTest, ThreadsDecodeAndCopyOneAfterTheOther) {
  EpochWork work{.samples = 1, .decode_bytes = 100 * kEpochMB, .copy_bytes = 5'000 * kEpochMB};
  const EpochPrediction both = Predict(work);
  EXPECT_DOUBLE_EQ(both.seconds, 3);
  EXPECT_EQ(ResourceName(both.bound), "decode");
  EXPECT_DOUBLE_EQ(both.bound.seconds, 2);
  work.copy_bytes = 20'000 * kEpochMB;
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 6);
  EXPECT_EQ(ResourceName(Predict(work).bound), "copy");
  work.decode_bytes = 0;
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 4);
}

TEST(PredictEpochTest, NodesThatShareTheStorageShareItsRate) {
  EpochWork work{.samples = 1, .storage = {{1'000'000, 800}}, .reads_in_flight = 4};
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 1);
  work.storage_sharers = 2;  // 800 MB/s beyond the last point: halved
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 2);
  work.reads_in_flight = 2;  // four together
  EXPECT_DOUBLE_EQ(Predict(work).seconds, 2);
  MachineModel model = MachineOfEpochs();
  model.storage.rate_max = 100 * kEpochMB;
  EXPECT_DOUBLE_EQ(Predict(work, model).seconds, 8);
}

TEST(PredictEpochTest, NothingToDoTakesNoTime) {
  const EpochPrediction prediction = Predict({});
  EXPECT_EQ(prediction.seconds, 0);
  EXPECT_TRUE(prediction.resources.empty());
  EXPECT_EQ(ResourceName(prediction.bound), "consumer");
}

TEST(PredictEpochTest, MoreWorkNeverTakesLess) {
  Prng random(3, 0, RandomStream::kOrder);
  const auto draw = [&] { return 1 + std::floor(random.Uniform() * 1e4); };
  for (int round = 0; round < 200; ++round) {
    EpochWork work{.samples = draw(),
                   .storage = {{1000 * draw(), draw()}},
                   .tiers = {{.reads = {{100 * draw(), draw()}}, .writes = {}}},
                   .peers = {{1e4, draw()}},
                   .decode_bytes = 1e5 * draw(),
                   .copy_bytes = 1e6 * draw(),
                   .demand = draw(),
                   .threads = 3};
    const double before = Predict(work).seconds;
    work.storage.push_back({1000 * draw(), draw()});
    work.tiers[0].writes.push_back({1000 * draw(), draw()});
    work.samples += 1;
    work.decode_bytes += 1e5;
    EXPECT_GE(Predict(work).seconds, before);
  }
}

TEST(PredictEpochTest, WorkThatCannotBeIsNamed) {
  const auto error = [](const EpochWork& work, const MachineModel& model) {
    const Result<EpochPrediction> made = PredictEpoch(model, work);
    EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
    return std::string(made.status().message());
  };
  const MachineModel model = MachineOfEpochs();
  EXPECT_THAT(error({.samples = -1}, model), HasSubstr("samples: got -1"));
  EXPECT_THAT(error({.decode_bytes = kUnlimited}, model), HasSubstr("decode_bytes: got inf"));
  EXPECT_THAT(error({.copy_bytes = std::nan("")}, model), HasSubstr("copy_bytes: got nan"));
  EXPECT_THAT(error({.threads = 0}, model), HasSubstr("threads: got 0"));
  EXPECT_THAT(error({.reads_in_flight = -4}, model), HasSubstr("reads_in_flight: got -4"));
  EXPECT_THAT(error({.storage_sharers = 0}, model), HasSubstr("storage_sharers: got 0"));
  EXPECT_THAT(error({.demand = 0}, model), HasSubstr("demand: got 0"));
  EXPECT_THAT(error({.storage = {{1, 1}, {0, 1}}}, model),
              HasSubstr("storage reads 1 bytes of a read: got 0"));
  EXPECT_THAT(error({.storage = {{1, -1}}}, model), HasSubstr("storage reads 0 count: got -1"));
  EXPECT_THAT(error({.tiers = {{.reads = {}, .writes = {{-1, 1}}}}}, model),
              HasSubstr("tier 0 writes 0 bytes of a read"));
  EXPECT_THAT(error({.tiers = {{}, {}}}, model), HasSubstr("must be at most the model's 1"));
  MachineModel alone = MachineOfEpochs();
  alone.link.reset();
  EXPECT_THAT(error({.peers = {{5, 1}}}, alone), HasSubstr("the model has no link"));
  alone.readers = -1;
  EXPECT_THAT(error({}, alone), HasSubstr("model readers: got -1"));
}

TEST(StreamClockTest, FollowsTheRecurrence) {
  MachineModel model;  // Two threads: reads of 10 B/s each from storage, 40 B/s into staging.
  model.storage.rate = EpochRates(10);
  model.staging = {.read = {}, .write = EpochRates(80), .threads = 2};
  model.tiers = {{.read = EpochRates(100), .write = {}}};
  StreamClock clock(model, /*compute_rate=*/20);
  const Source storage{.kind = Source::Kind::kStorage};
  const Source tier{.kind = Source::Kind::kTier};
  // fetch 4 s, write 1 s: available after 2.5 s; computed at 4.5.
  EXPECT_DOUBLE_EQ(clock.Add(40, storage), 2.5);
  EXPECT_DOUBLE_EQ(clock.now(), 4.5);
  // fetch 0.4 s, write 1 s: available at 3.2, before its turn.
  EXPECT_DOUBLE_EQ(clock.Add(40, tier), 4.5);
  EXPECT_DOUBLE_EQ(clock.available(), 3.2);
  EXPECT_DOUBLE_EQ(clock.now(), 6.5);
  clock.WaitUntil(8);
  clock.WaitUntil(7);
  EXPECT_DOUBLE_EQ(clock.Add(20, storage), 8);
  EXPECT_DOUBLE_EQ(clock.now(), 9);
  EXPECT_DOUBLE_EQ(clock.compute_seconds(), 5);
  EXPECT_DOUBLE_EQ(clock.stall_seconds(), 2.5);
  EXPECT_DOUBLE_EQ(clock.fetch_seconds(Source::Kind::kStorage), 6);
  EXPECT_DOUBLE_EQ(clock.fetch_seconds(Source::Kind::kTier), 0.4);
  EXPECT_DOUBLE_EQ(clock.fetch_seconds(Source::Kind::kPeer), 0);
  EXPECT_EQ(clock.Add(1, {.kind = Source::Kind::kPeer}), kUnlimited);
}

// One draw of a normal distribution (Box-Muller), clipped at 0.
double Normal(Prng& random, double mean, double deviation) {
  const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
  const double draw = radius * std::cos(2 * std::numbers::pi * random.Uniform());
  return std::max(0.0, mean + deviation * draw);
}

struct Scenario {
  const char* name;
  double size_mean, size_deviation;  // MB
  double samples, epochs;
  double seconds;  // the thesis' lower bound
};

class LowerBoundTest : public ::testing::TestWithParam<Scenario> {};

// The thesis' lower bound: four workers that wait only for each other, after each batch of 25
// samples each, at 100 MB/s. Simulates a part of the batches; they are alike.
TEST_P(LowerBoundTest, IsTheThesis) {
  constexpr int kWorkers = 4;
  constexpr int kShare = 25;
  constexpr int kBatches = 2000;
  const Scenario& scenario = GetParam();
  MachineModel perfect;
  perfect.tiers = {TierModel()};
  std::vector<StreamClock> clocks(kWorkers, StreamClock(perfect, 100 * kEpochMB));
  Prng random(1, 0, RandomStream::kOrder);
  double end = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    for (StreamClock& clock : clocks) {
      clock.WaitUntil(end);
      for (int i = 0; i < kShare; ++i) {
        const double megabytes = Normal(random, scenario.size_mean, scenario.size_deviation);
        clock.Add(kEpochMB * megabytes, {.kind = Source::Kind::kTier});
      }
    }
    for (const StreamClock& clock : clocks) end = std::max(end, clock.now());
  }
  const double batches = scenario.epochs * scenario.samples / (kWorkers * kShare);
  EXPECT_NEAR(end * batches / kBatches, scenario.seconds, 0.01 * scenario.seconds);
  EXPECT_DOUBLE_EQ(clocks[0].stall_seconds(), 0);
}

INSTANTIATE_TEST_SUITE_P(Thesis, LowerBoundTest,
                         ::testing::Values(Scenario{"S1", 0.027, 0.01, 1e4, 10, 7.30},
                                           Scenario{"S2", 1, 0.1, 1.5e5, 10, 3825.66},
                                           Scenario{"S3", 2, 0.2, 3e5, 5, 7655.25},
                                           Scenario{"S4", 3, 0.2, 4e5, 5, 15204.78}),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace headrace
