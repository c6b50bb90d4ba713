#include "model/source_times.h"

#include <array>
#include <cstddef>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

using Kind = Source::Kind;

Curve SourceCurve(std::vector<Curve::Point> points) {
  return Curve::Make(std::move(points)).value();
}
SizedRates SourceRates(double rate) { return SizedRates::OfAnySize(SourceCurve({{1, rate}})); }

// A tier in memory and one on a disk; other nodes are between them.
MachineModel MachineOfSources() {
  MachineModel model;
  model.storage.rate = SourceRates(100);
  model.tiers = {{.read = SourceRates(10'000), .write = {}},
                 {.read = SourceRates(300), .write = {}}};
  model.link = LinkModel{.rate = SourceRates(1000)};
  return model;
}

TEST(SourceTimesTest, TheFastestOfThoseThatHaveItIsTaken) {
  const SourceTimes times(MachineOfSources());
  EXPECT_EQ(times.Fastest({.bytes = 10}), Kind::kStorage);
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 0}), Kind::kTier);
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 0, .peer = 0}), Kind::kTier);
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 1, .peer = 0}), Kind::kPeer);
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 1, .peer = 1}), Kind::kTier) << "as slow a disk";
  EXPECT_EQ(times.Fastest({.bytes = 10, .peer = 1}), Kind::kPeer);
}

TEST(SourceTimesTest, NodesThatReadStorageMakeItSlower) {
  MachineModel model = MachineOfSources();
  model.storage.rate = SourceRates(2000);
  SourceTimes times(model);
  const SampleRead at_peer{.bytes = 10, .peer = 0};
  EXPECT_EQ(times.Fastest(at_peer), Kind::kStorage);
  times.SetStorageNodes(2);
  EXPECT_EQ(times.Fastest(at_peer), Kind::kPeer) << "1000 bytes/s each: a tie";
  times.SetStorageNodes(1);
  EXPECT_EQ(times.Fastest(at_peer), Kind::kStorage);
  model.storage.shared = false;
  SourceTimes own(model);
  own.SetStorageNodes(2);
  EXPECT_EQ(own.Fastest(at_peer), Kind::kStorage) << "each node has its own";
}

TEST(SourceTimesTest, StorageIsComparedByTheReadThatTheSampleComesWith) {
  MachineModel model = MachineOfSources();
  model.storage.rate = SizedRates::Make({{.bytes = 10, .rate = SourceCurve({{1, 100}})},
                                         {.bytes = 1000, .rate = SourceCurve({{1, 5000}})}})
                           .value();
  const SourceTimes times(model);
  EXPECT_EQ(times.Fastest({.bytes = 10, .peer = 0}), Kind::kPeer);
  EXPECT_EQ(times.Fastest({.bytes = 10, .storage_bytes = 1000, .peer = 0}), Kind::kStorage);
}

TEST(SourceTimesTest, WhatWasNotMeasuredIsTakenBeforeStorage) {
  MachineModel model = MachineOfSources();
  model.storage.rate = SourceRates(1e9);
  model.link.reset();
  const SourceTimes times(model);
  EXPECT_EQ(times.Fastest({.bytes = 10, .peer = 0}), Kind::kPeer) << "no link";
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 1, .peer = 0}), Kind::kStorage);
  EXPECT_EQ(times.Fastest({.bytes = 10, .tier = 7}), Kind::kTier);
  EXPECT_EQ(times.Fastest({.bytes = 0, .tier = 1}), Kind::kTier);
}

// The slow and the quick way to choose are one choice.
TEST(SourceTimesTest, ChoosesAsRankSourcesDoes) {
  Prng random(7, 0, RandomStream::kOrder);
  const auto draw = [&](double most) {
    return 1 + static_cast<double>(random.Below(static_cast<std::uint64_t>(most)));
  };
  const auto rates = [&] {
    std::vector<SizedRates::Size> sizes;
    const std::uint64_t count = random.Below(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      sizes.push_back({.bytes = 1000ULL << (3 * i),
                       .rate = SourceCurve({{1, draw(1e6)}, {4, draw(1e6)}, {16, draw(1e6)}})});
    }
    return sizes.empty() ? SizedRates() : SizedRates::Make(std::move(sizes)).value();
  };
  std::array<int, 3> chosen{};
  for (int i = 0; i < 2000; ++i) {
    MachineModel model;
    model.storage = {.rate = rates(), .rate_max = draw(1e6), .shared = random.Below(4) > 0};
    model.readers = draw(16);
    model.tiers = {{.read = rates(), .write = {}, .threads = draw(4)},
                   {.read = rates(), .write = {}, .threads = draw(4)}};
    model.link = LinkModel{.rate = rates(), .asked = draw(64)};
    const double nodes = draw(8);
    SourceTimes times(model);
    times.SetStorageNodes(nodes);
    const double bytes = draw(200'000);
    SampleRead read{.bytes = bytes};
    std::vector<Source> sources = {{.kind = Kind::kStorage}};
    if (random.Below(3) > 0) read.tier = random.Below(2);
    if (random.Below(3) > 0) read.peer = random.Below(2);
    if (read.tier.has_value()) sources.push_back({.kind = Kind::kTier, .tier = *read.tier});
    if (read.peer.has_value()) sources.push_back({.kind = Kind::kPeer, .tier = *read.peer});
    const std::vector<RankedSource> ranked = RankSources(model, bytes, sources, nodes);
    const Kind kind = times.Fastest(read);
    ++chosen[static_cast<std::size_t>(kind)];
    if (kind == ranked[0].source.kind) continue;
    // The same seconds, but for rounding.
    ASSERT_EQ(kind, ranked[1].source.kind) << i;
    ASSERT_NEAR(ranked[0].seconds, ranked[1].seconds, 1e-12 * ranked[0].seconds) << i;
  }
  for (const int times : chosen) EXPECT_GT(times, 100);
}

}  // namespace
}  // namespace headrace
