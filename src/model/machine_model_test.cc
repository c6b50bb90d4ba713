#include "headrace/machine_model.h"

#include <cmath>
#include <limits>

#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kMB = 1e6;

Curve MakeCurve(std::vector<Curve::Point> points) { return Curve::Make(std::move(points)).value(); }

std::string CurveError(std::vector<Curve::Point> points) {
  const Result<Curve> made = Curve::Make(std::move(points));
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  return std::string(made.status().message());
}

// The thesis' simulated system (Boehringer 2020): 2 threads a class, t(1..4) of the file system.
MachineModel Thesis(double readers) {
  const auto tier = [](double rate) {
    return TierModel{.read = SizedRates::OfAnySize(MakeCurve({{2, rate * kMB}})),
                     .write = SizedRates::OfAnySize(MakeCurve({{2, rate * kMB}})),
                     .threads = 2};
  };
  MachineModel model;
  model.storage.rate = SizedRates::OfAnySize(
      MakeCurve({{1, 66 * kMB}, {2, 86 * kMB}, {3, 129 * kMB}, {4, 146 * kMB}}));
  model.storage.rate_max = 2000 * kMB;
  model.readers = readers;
  model.tiers = {tier(21164), tier(86)};
  model.staging = tier(21164);
  model.link = LinkModel{.rate = SizedRates::OfAnySize(MakeCurve({{1, 10000 * kMB}}))};
  model.preprocess_rate = 200 * kMB;
  return model;
}

TEST(CurveTest, IsLinearBetweenPointsAndConstantBeyond) {
  const Curve curve = MakeCurve({{2, 100}, {4, 300}, {8, 200}});
  EXPECT_DOUBLE_EQ(curve.Rate(1), 100);
  EXPECT_DOUBLE_EQ(curve.Rate(2), 100);
  EXPECT_DOUBLE_EQ(curve.Rate(3), 200);
  EXPECT_DOUBLE_EQ(curve.Rate(3.5), 250);
  EXPECT_DOUBLE_EQ(curve.Rate(4), 300);
  EXPECT_DOUBLE_EQ(curve.Rate(7), 225);
  EXPECT_DOUBLE_EQ(curve.Rate(8), 200);
  EXPECT_DOUBLE_EQ(curve.Rate(1000), 200);
  EXPECT_DOUBLE_EQ(curve.RateEach(4), 75);
}

TEST(CurveTest, WithoutPointsThereIsNoLimit) {
  EXPECT_EQ(Curve().Rate(1), kUnlimited);
  EXPECT_EQ(Curve().RateEach(7), kUnlimited);
}

TEST(CurveTest, APointThatCannotBeIsNamed) {
  EXPECT_THAT(CurveError({}), HasSubstr("got no points"));
  EXPECT_EQ(CurveError({{0, 5}}), "rate curve point 0 users: got 0, must be finite and above 0");
  EXPECT_EQ(CurveError({{1, 5}, {3, 5}, {2, 5}}),
            "rate curve point 2 users: got 2, must be finite and above 3");
  EXPECT_THAT(CurveError({{1, 5}, {1, 6}}), HasSubstr("point 1 users: got 1"));
  EXPECT_EQ(CurveError({{1, 5}, {2, -3}}),
            "rate curve point 1 (2 users) rate: got -3, must be finite and above 0 bytes/s");
  EXPECT_THAT(CurveError({{1, 0}}), HasSubstr("rate: got 0"));
  EXPECT_THAT(CurveError({{1, kUnlimited}}), HasSubstr("rate: got inf"));
  EXPECT_THAT(CurveError({{1, std::nan("")}}), HasSubstr("rate: got nan"));
  EXPECT_THAT(CurveError({{std::nan(""), 1}}), HasSubstr("users: got nan"));
}

TEST(SizedRatesTest, BetweenTwoSizesTheTimeOfAReadIsLinear) {
  // 1 ms and 3 ms a read: 2 ms halfway.
  const SizedRates rates = SizedRates::Make({{.bytes = 1000, .rate = MakeCurve({{1, 1e6}})},
                                             {.bytes = 9000, .rate = MakeCurve({{1, 3e6}})}})
                               .value();
  EXPECT_DOUBLE_EQ(rates.Rate(1000, 1), 1e6);
  EXPECT_DOUBLE_EQ(rates.Rate(5000, 1), 2.5e6);
  EXPECT_DOUBLE_EQ(rates.Rate(9000, 1), 3e6);
  EXPECT_DOUBLE_EQ(rates.Rate(90000, 1), 3e6);
  EXPECT_DOUBLE_EQ(rates.Rate(100, 1), 1e5);  // takes as long as 1000 bytes
}

TEST(SizedRatesTest, ASingleSizeHoldsForAll) {
  const SizedRates rates = SizedRates::OfAnySize(MakeCurve({{1, 10}, {3, 20}}));
  for (const double bytes : {0.5, 1.0, 4096.0, 1e12}) {
    EXPECT_DOUBLE_EQ(rates.Rate(bytes, 2), 15);
  }
  EXPECT_EQ(SizedRates().Rate(7, 2), kUnlimited);
}

TEST(SizedRatesTest, SizesMustAscend) {
  EXPECT_THAT(SizedRates::Make({}).status().message(), HasSubstr("got no sizes"));
  const Status status = SizedRates::Make({{.bytes = 4096}, {.bytes = 4096}}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "rates by size, size 1: got 4096 bytes, must be above 4096");
  EXPECT_FALSE(SizedRates::Make({{.bytes = 0}}).ok());
}

TEST(SizedRatesTest, RatesStayBetweenTheMeasuredOnesAndLargerReadsNeverTakeLess) {
  Prng random(1, 0, RandomStream::kOrder);
  for (int round = 0; round < 100; ++round) {
    std::vector<SizedRates::Size> sizes;
    double seconds = 0;
    for (std::uint64_t bytes = 4096; bytes <= 4194304; bytes *= 4) {
      seconds += 1e-5 + random.Uniform() * 1e-3;
      const double rate = static_cast<double>(bytes) / seconds;
      sizes.push_back({.bytes = bytes, .rate = MakeCurve({{1, rate}, {9, 3 * rate}})});
    }
    const SizedRates rates = SizedRates::Make(sizes).value();
    double before = 0;
    for (int step = 0; step < 40; ++step) {
      const double bytes = 512 * std::pow(1.3, step);
      const double users = 1 + random.Uniform() * 10;
      const double alone = bytes / rates.Rate(bytes, 1);
      EXPECT_GE(alone, before * (1 - 1e-12));
      before = alone;
      EXPECT_GE(rates.Rate(bytes, users), rates.Rate(bytes, 1) * (1 - 1e-12));
      EXPECT_LE(rates.Rate(bytes, users), 3 * rates.Rate(bytes, 1) * (1 + 1e-12));
    }
  }
}

TEST(MachineModelTest, SecondsOfTheThesisSystem) {
  const MachineModel model = Thesis(4);
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, kMB), 1 / 36.5);     // t(4) / 4
  EXPECT_DOUBLE_EQ(SecondsFromTier(model, 0, kMB), 1 / 10582.0);  // r_1(2) / 2
  EXPECT_DOUBLE_EQ(SecondsFromTier(model, 1, kMB), 1 / 43.0);     // r_2(2) / 2
  EXPECT_DOUBLE_EQ(SecondsFromPeer(model, 0, kMB), 1 / 10000.0);  // b_c is the smaller
  EXPECT_DOUBLE_EQ(SecondsFromPeer(model, 1, kMB), 1 / 43.0);
  EXPECT_DOUBLE_EQ(SecondsToStage(model, kMB), 1 / 200.0);  // beta is
  EXPECT_DOUBLE_EQ(SecondsFromStorage(Thesis(1), kMB), 1 / 66.0);
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, 0), 0);
}

TEST(MachineModelTest, OneWorkersLinkLimitsWhatStorageGives) {
  MachineModel model = Thesis(1);
  model.storage.rate_max = 20 * kMB;
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, kMB), 1 / 20.0);
}

TEST(MachineModelTest, NodesShareWhatStorageGives) {
  MachineModel model = Thesis(1);
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, kMB, 3), 1 / 43.0);  // t(3) / 3
  model.readers = 2;
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, kMB, 2), 1 / 36.5);  // t(2 * 2) / (2 * 2)
  model.storage.shared = false;
  EXPECT_DOUBLE_EQ(SecondsFromStorage(model, kMB, 2), 1 / 43.0);  // t(2) / 2
}

TEST(MachineModelTest, SmallSamplesOfAnotherNodeTakeItsLatency) {
  MachineModel model;
  model.tiers = {{.read = SizedRates::OfAnySize(MakeCurve({{1, 1e12}})), .write = {}}};
  const SizedRates sized =
      SizedRates::Make({{.bytes = 1000, .rate = MakeCurve({{1, 1e6}, {10, 4e6}})},
                        {.bytes = 2000, .rate = MakeCurve({{1, 2e6}, {10, 8e6}})}})
          .value();
  model.link = LinkModel{.rate = sized, .asked = 10};
  EXPECT_DOUBLE_EQ(SecondsFromPeer(model, 0, 1000), 10 * 1000 / 4e6);
  EXPECT_DOUBLE_EQ(SecondsFromPeer(model, 0, 10), 10 * 1000 / 4e6);
  EXPECT_DOUBLE_EQ(SecondsFromPeer(model, 0, 4000), 10 * 4000 / 8e6);
}

TEST(MachineModelTest, AnUnknownSourceTakesForEver) {
  MachineModel model = Thesis(4);
  EXPECT_EQ(SecondsFromTier(model, 2, 0), kUnlimited);
  EXPECT_EQ(SecondsFromPeer(model, 2, 1), kUnlimited);
  model.link.reset();
  EXPECT_EQ(SecondsFromPeer(model, 0, 1), kUnlimited);
}

std::vector<Source> Ranked(const MachineModel& model, const std::vector<Source>& candidates) {
  std::vector<Source> sources;
  for (const RankedSource& each : RankSources(model, kMB, candidates)) {
    sources.push_back(each.source);
  }
  return sources;
}

TEST(RankSourcesTest, TheFastestComesFirstWhicheverItIs) {
  const Source storage{.kind = Source::Kind::kStorage};
  const Source ram{.kind = Source::Kind::kTier, .tier = 0};
  const Source ssd{.kind = Source::Kind::kTier, .tier = 1};
  const Source peer{.kind = Source::Kind::kPeer, .tier = 0};
  const std::vector<Source> all = {storage, ssd, peer, ram};
  // Four readers leave storage 36.5 MB/s each, below the 43 of the SSD; one reader has 66.
  EXPECT_THAT(Ranked(Thesis(4), all), ElementsAre(ram, peer, ssd, storage));
  EXPECT_THAT(Ranked(Thesis(1), all), ElementsAre(ram, peer, storage, ssd));
}

TEST(RankSourcesTest, TheMoreNodesReadStorageTheLaterItComes) {
  const Source storage{.kind = Source::Kind::kStorage};
  const Source ssd{.kind = Source::Kind::kTier, .tier = 1};
  const std::vector<Source> both = {storage, ssd};
  EXPECT_EQ(RankSources(Thesis(1), kMB, both, 1).front().source, storage);
  EXPECT_EQ(RankSources(Thesis(1), kMB, both, 4).front().source, ssd);
}

TEST(RankSourcesTest, AmongEqualsThisNodeIsBeforePeersBeforeStorage) {
  MachineModel model;
  const TierModel tier{.read = SizedRates::OfAnySize(MakeCurve({{1, 100}})), .write = {}};
  model.tiers = {tier, tier};
  model.link = LinkModel{.rate = SizedRates::OfAnySize(MakeCurve({{1, 1000}}))};
  model.storage.rate = SizedRates::OfAnySize(MakeCurve({{1, 100}}));
  const Source storage{.kind = Source::Kind::kStorage};
  const Source first{.kind = Source::Kind::kTier, .tier = 0};
  const Source second{.kind = Source::Kind::kTier, .tier = 1};
  const Source third{.kind = Source::Kind::kTier, .tier = 2};
  const Source peer{.kind = Source::Kind::kPeer, .tier = 0};
  EXPECT_THAT(Ranked(model, {third, storage, peer, second, first}),
              ElementsAre(first, second, peer, storage, third));
}

TEST(CheckModelTest, WhatCannotBeIsNamed) {
  EXPECT_TRUE(CheckModel(Thesis(4)).ok());
  const auto error = [](auto change) {
    MachineModel model = Thesis(4);
    change(model);
    const Status status = CheckModel(model);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error([](MachineModel& m) { m.readers = 0; }), "model readers: got 0, must be above 0");
  EXPECT_EQ(error([](MachineModel& m) { m.tiers[1].threads = -2; }),
            "model tier 1 threads: got -2, must be above 0");
  EXPECT_THAT(error([](MachineModel& m) { m.staging.threads = 0; }), HasSubstr("staging threads"));
  EXPECT_THAT(error([](MachineModel& m) { m.storage.rate_max = 0; }), HasSubstr("rate_max"));
  EXPECT_THAT(error([](MachineModel& m) { m.preprocess_rate = -1; }), HasSubstr("preprocess"));
  EXPECT_EQ(error([](MachineModel& m) { m.link->asked = 0; }),
            "model link asked: got 0, must be above 0");
  EXPECT_THAT(error([](MachineModel& m) { m.readers = std::nan(""); }), HasSubstr("got nan"));
}

}  // namespace
}  // namespace headrace
