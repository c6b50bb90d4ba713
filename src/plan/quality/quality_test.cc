#include "plan/quality/quality.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/hash.h"
#include "base/prng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/permutation.h"
#include "plan/quality/measures.h"

namespace headrace {
namespace {

using Ids = std::vector<std::uint64_t>;

constexpr std::uint64_t kOrderSamples = 16'384;
constexpr std::uint64_t kOrderBlock = 64;
constexpr std::uint64_t kOrderBatch = 64;

Ids Uniform(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(count, seed, epoch, RandomStream::kOrder);
  Ids ids(count);
  for (std::uint64_t i = 0; i < count; ++i) ids[i] = permutation.At(i);
  return ids;
}

std::unique_ptr<QualityMeter> Meter(QualityOptions options) {
  auto made = QualityMeter::Make(std::move(options));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

QualityOptions Options(std::uint64_t samples = kOrderSamples, std::uint64_t block = kOrderBlock) {
  return {.sample_count = samples,
          .blocks = MakeUniformBlocks(samples, block),
          .batch = kOrderBatch,
          .alpha = 1e-6};
}

QualityReport Measure(const QualityOptions& options, const std::vector<Ids>& epochs) {
  const auto meter = Meter(options);
  for (const Ids& ids : epochs) {
    // In pieces: the cuts must not matter.
    const std::span all(ids);
    const std::size_t cut = all.size() / 3;
    meter->Add(all.first(cut));
    meter->Add(all.subspan(cut));
    meter->EndEpoch();
  }
  return meter->Report();
}

// Eight broken orders. Each replaces a uniform order for an epoch.
using Broken = std::function<Ids(std::uint64_t epoch)>;

Ids Sequential(std::uint64_t /*epoch*/) {
  Ids ids(kOrderSamples);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Blocks in random order, each from first to last.
Ids BlockOrderOnly(std::uint64_t epoch) {
  Ids ids;
  for (const std::uint64_t block : Uniform(kOrderSamples / kOrderBlock, 1, epoch)) {
    for (std::uint64_t i = 0; i < kOrderBlock; ++i) ids.push_back(block * kOrderBlock + i);
  }
  return ids;
}

// i a + b mod n: no block twice in a batch, and always the same neighbours.
Ids Congruential(std::uint64_t epoch) {
  Ids ids(kOrderSamples);
  for (std::uint64_t i = 0; i < kOrderSamples; ++i)
    ids[i] = (i * 10'125 + 77 * epoch) % kOrderSamples;
  return ids;
}

// tf.data's buffer over samples in storage order: a random one leaves, the next one enters.
Ids Buffered(std::uint64_t epoch) {
  Prng prng(2, epoch, RandomStream::kPool);
  Ids buffer;
  Ids ids;
  for (std::uint64_t next = 0; next < kOrderSamples || !buffer.empty();) {
    while (next < kOrderSamples && buffer.size() < kOrderSamples / 8) buffer.push_back(next++);
    std::swap(buffer[prng.Below(buffer.size())], buffer.back());
    ids.push_back(buffer.back());
    buffer.pop_back();
  }
  return ids;
}

// A pool of an eighth that answers missing samples with its newest one.
Ids NewestVictim(std::uint64_t epoch) {
  const Ids blocks = Uniform(kOrderSamples / kOrderBlock, 3, epoch);
  Ids pool;
  Ids ids;
  std::size_t next = 0;
  for (const std::uint64_t wanted : Uniform(kOrderSamples, 4, epoch)) {
    while (next < blocks.size() && pool.size() + kOrderBlock <= kOrderSamples / 8) {
      for (std::uint64_t i = 0; i < kOrderBlock; ++i)
        pool.push_back(blocks[next] * kOrderBlock + i);
      ++next;
    }
    const auto found = std::ranges::find(pool, wanted);
    const auto victim = found == pool.end() ? std::prev(pool.end()) : found;
    ids.push_back(*victim);
    pool.erase(victim);
  }
  return ids;
}

std::uint32_t CostOf(std::uint64_t sample) {
  return static_cast<std::uint32_t>(Mix64(sample) % 1000);
}

// Uniform, except for large samples, which are late by a twentieth of the epoch.
Ids LargeLate(std::uint64_t epoch) {
  Prng prng(5, epoch, RandomStream::kPool);
  std::vector<std::pair<double, std::uint64_t>> keyed;
  for (std::uint64_t s = 0; s < kOrderSamples; ++s) {
    keyed.emplace_back(prng.Uniform() + (CostOf(s) >= 900 ? 0.05 : 0), s);
  }
  std::ranges::sort(keyed);
  Ids ids;
  for (const auto& [key, sample] : keyed) ids.push_back(sample);
  return ids;
}

Ids SameEveryEpoch(std::uint64_t /*epoch*/) { return Uniform(kOrderSamples, 6, 0); }

Ids OneTwiceAndOneNever(std::uint64_t epoch) {
  Ids ids = Uniform(kOrderSamples, 7, epoch);
  ids[17] = ids[4711];
  return ids;
}

struct OrderCase {
  const char* name;
  Broken order;
  std::vector<const char*> caught_by;  // all of these
  const char* verdict;
};

const std::vector<OrderCase>& OrderCases() {
  static const std::vector<OrderCase> cases = {
      {"sequential", Sequential, {"position_correlation", "vif_64", "neighbour_entropy"}, "poor"},
      {"block order only", BlockOrderOnly, {"vif_64", "same_group_next", "gap_ks"}, "poor"},
      {"congruential", Congruential, {"vif_64", "neighbour_entropy", "pair_recurrence"}, "poor"},
      {"buffer over storage order",
       Buffered,
       {"prefix_neighbours", "position_correlation", "mix_last"},
       "poor"},
      {"newest victim",
       NewestVictim,
       {"vif_64", "pair_recurrence", "autocorrelation_time"},
       "poor"},
      {"large samples late", LargeLate, {"lateness_by_cost"}, "poor"},
      {"same every epoch", SameEveryEpoch, {"epoch_correlation", "pair_recurrence"}, "poor"},
      {"one twice and one never", OneTwiceAndOneNever, {}, "broken"},
  };
  return cases;
}

TEST(QualityTest, EachBrokenOrderIsCaughtByTheMeasuresThatShouldCatchIt) {
  QualityOptions options = Options();
  auto costs = std::make_shared<std::vector<std::uint32_t>>();
  for (std::uint64_t s = 0; s < kOrderSamples; ++s) costs->push_back(CostOf(s));
  options.costs = costs;
  for (const OrderCase& each : OrderCases()) {
    const QualityReport report = Measure(options, {each.order(0), each.order(1), each.order(2)});
    EXPECT_EQ(report.verdict, each.verdict) << each.name << ": " << report.why;
    EXPECT_NE(report.change, "") << each.name;
    for (const char* measure : each.caught_by) {
      EXPECT_THAT(report.failed, testing::Contains(measure)) << each.name;
    }
  }
}

TEST(QualityTest, WhatOnlyOneMeasureSeesIsSeenByThatMeasureAlone) {
  QualityOptions options = Options();
  const QualityReport same = Measure(options, {SameEveryEpoch(0), SameEveryEpoch(1)});
  EXPECT_THAT(same.failed, testing::UnorderedElementsAre("epoch_correlation", "pair_recurrence"));
  const QualityReport twice = Measure(options, {OneTwiceAndOneNever(0)});
  EXPECT_THAT(twice.failed, testing::IsEmpty());
  EXPECT_EQ(twice.missing, 1U);
  EXPECT_EQ(twice.duplicated, 1U);
  auto costs = std::make_shared<std::vector<std::uint32_t>>();
  for (std::uint64_t s = 0; s < kOrderSamples; ++s) costs->push_back(CostOf(s));
  options.costs = costs;
  const QualityReport late = Measure(options, {LargeLate(0), LargeLate(1), LargeLate(2)});
  EXPECT_THAT(late.failed, testing::UnorderedElementsAre("lateness_by_cost"));
}

// Bonferroni at 1e-6 over everything: with fixed seeds a failure means that a null is wrong.
TEST(QualityTest, UniformPermutationsAreWithinEveryBound) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const QualityReport report =
        Measure(Options(), {Uniform(kOrderSamples, seed, 0), Uniform(kOrderSamples, seed, 1)});
    EXPECT_EQ(report.verdict, "excellent") << seed << testing::PrintToString(report.failed);
    EXPECT_EQ(report.missing + report.duplicated + report.unknown, 0U);
    EXPECT_EQ(report.seen_share, 1);
  }
}

// Uneven numbers, a part of the samples, uneven labels: means 0 and deviations 1 of every z.
TEST(QualityTest, TheNullsHaveTheMomentsOfUniformPermutations) {
#ifdef NDEBUG
  constexpr std::uint64_t kRuns = 600;
#else
  constexpr std::uint64_t kRuns = 100;
#endif
  auto labels = std::make_shared<std::vector<std::uint32_t>>();
  for (std::uint32_t s = 0; s < 3001; ++s)
    labels->push_back(s < 1500 ? 0 : (s < 2900 ? 1 : 2 + s % 7));
  QualityOptions odd = Options(3001, 7);
  odd.batch = 33;
  QualityOptions part = Options(4000, 16);
  part.partial = true;
  QualityOptions labelled = Options(3001, 7);
  labelled.labels = labels;
  for (const QualityOptions& options : {odd, part, labelled}) {
    std::map<std::string, std::vector<double>> scores;
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      std::vector<Ids> epochs;
      for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
        epochs.push_back(Uniform(options.sample_count, 1000 + run, epoch));
        if (options.partial) epochs.back().resize(options.sample_count / 3);
      }
      for (const QualityTest& test : Measure(options, epochs).tests) {
        if (test.id != "M5" && test.id != "M6" && test.id != "M8")
          scores[test.name].push_back(test.z);
      }
    }
    EXPECT_GE(scores.size(), 13U);
    for (const auto& [name, values] : scores) {
      double sum = 0;
      double squares = 0;
      for (const double z : values) sum += z;
      const double mean = sum / kRuns;
      for (const double z : values) squares += (z - mean) * (z - mean);
      // Five standard errors: 1e-6 and less.
      EXPECT_NEAR(mean, 0, 5 / std::sqrt(kRuns) * 1.1) << name;
      const double deviation = std::sqrt(squares / kRuns);
      EXPECT_LT(deviation, 1 + 5 / std::sqrt(2.0 * kRuns)) << name;
      // Of a few rare labels in one window the skewness is overestimated: bounds are wide there.
      const double slack = options.labels != nullptr && name.starts_with("mix_") ? 0.1 : 0;
      EXPECT_GT(deviation, 1 - 5 / std::sqrt(2.0 * kRuns) - slack) << name;
    }
  }
}

// The same statistic, written out as a table of observed and expected counts.
TEST(QualityTest, TheWindowChiSquareIsPearsonsOfTheWholeTable) {
  const Ids order = Uniform(1000, 9, 0);
  std::vector<std::uint32_t> groups;
  for (const std::uint64_t id : order)
    groups.push_back(static_cast<std::uint32_t>(id * id / 77'000));
  std::vector<std::uint32_t> sizes(13);
  for (const std::uint32_t group : groups) ++sizes[group];
  for (const std::uint64_t window : {1U, 7U, 64U, 250U, 999U}) {
    double expected = 0;
    for (std::uint64_t first = 0; first < 1000; first += window) {
      const std::uint64_t last = std::min<std::uint64_t>(1000, first + window);
      for (std::uint32_t group = 0; group < sizes.size(); ++group) {
        const double mean = static_cast<double>(last - first) * sizes[group] / 1000;
        const auto seen = static_cast<double>(
            std::count(groups.begin() + static_cast<std::ptrdiff_t>(first),
                       groups.begin() + static_cast<std::ptrdiff_t>(last), group));
        expected += (seen - mean) * (seen - mean) / mean;
      }
    }
    EXPECT_NEAR(quality::WindowChiSquare(groups, sizes, window), expected, 1e-6 * expected)
        << window;
  }
}

TEST(QualityTest, PrefixDiscrepancyIsTheLargestOverEveryPrefixAndGroup) {
  const Ids order = Uniform(500, 3, 0);
  std::vector<std::uint32_t> groups;
  for (const std::uint64_t id : order) groups.push_back(static_cast<std::uint32_t>(id / 100));
  const std::vector<std::uint32_t> sizes(5, 100);
  double most = 0;
  for (std::uint32_t group = 0; group < 5; ++group) {
    double count = 0;
    for (std::size_t k = 0; k < 500; ++k) {
      count += groups[k] == group ? 1 : 0;
      most =
          std::max(most, std::abs(count - static_cast<double>(k + 1) / 5) / std::sqrt(500 * 0.16));
    }
  }
  EXPECT_NEAR(quality::PrefixDiscrepancy(groups, sizes), most, 1e-12);
}

// The table of known orders: a buffer of 12.5 % over 128 blocks of 1,024, batches of 128.
TEST(QualityTest, KnownOrdersMeasureWhatTheyDidElsewhere) {
  constexpr std::uint64_t kCount = 131'072;
  QualityOptions options = Options(kCount, 1024);
  options.batch = 128;
  Ids sequential(kCount);
  std::iota(sequential.begin(), sequential.end(), 0);
  const QualityReport in_order = Measure(options, {sequential});
  EXPECT_NEAR(in_order.vif.at(128), 128, 1);
  EXPECT_NEAR(in_order.vif.at(1024), 1032, 1);
  EXPECT_NEAR(in_order.Find("position_correlation")->z, 362, 1);
  EXPECT_NEAR(in_order.Find("prefix")->value, 31.9, 0.2);
  EXPECT_NEAR(in_order.Find("gap_ks")->value, 362, 1);
  EXPECT_EQ(in_order.Find("neighbour_entropy")->value, 0);
  const QualityReport uniform = Measure(options, {Uniform(kCount, 1, 0)});
  EXPECT_NEAR(uniform.Find("neighbour_entropy")->value, 15.98, 0.01);
  EXPECT_NEAR(uniform.vif.at(128), 1, 0.02);
  EXPECT_NEAR(uniform.more.at("effective_sources"), 64.3, 0.3);
}

TEST(QualityTest, DroppedAndPaddedSamplesCountAsDeclaredAndNoFurther) {
  Ids ids = Uniform(1000, 1, 0);
  ids.resize(960);
  QualityOptions options = Options(1000, 10);
  EXPECT_EQ(Measure(options, {ids}).missing, 40U);
  options.dropped = 40;
  const QualityReport declared = Measure(options, {ids});
  EXPECT_EQ(declared.missing, 0U);
  EXPECT_EQ(declared.dropped, 40U);
  options.dropped = 39;
  EXPECT_EQ(Measure(options, {ids}).missing, 1U);
  options.dropped = 0;
  options.padded = 2;
  ids = Uniform(1000, 1, 0);
  ids.push_back(ids[990]);
  ids.push_back(ids[991]);
  EXPECT_EQ(Measure(options, {ids}).duplicated, 0U);
  EXPECT_EQ(Measure(options, {ids}).padded, 2U);
  ids.push_back(ids[992]);
  EXPECT_EQ(Measure(options, {ids}).duplicated, 1U);
  ids.push_back(1000);
  EXPECT_EQ(Measure(options, {ids}).unknown, 1U);
}

TEST(QualityTest, RedirectionIsTheDistanceBetweenAskedAndGiven) {
  const auto meter = Meter(Options(4, 2));
  meter->Add(Ids{1, 0, 2, 3});
  meter->AddRequested(Ids{0, 1, 2, 3});
  meter->EndEpoch();
  // Few samples: the measure of positions starts only at 16.
  EXPECT_EQ(meter->Report().more.count("redirect_rate"), 0U);
  const auto larger = Meter(Options(32, 2));
  Ids given(32);
  std::iota(given.begin(), given.end(), 0);
  larger->AddRequested(given);
  std::swap(given[3], given[13]);
  larger->Add(given);
  larger->EndEpoch();
  const QualityReport report = larger->Report();
  EXPECT_EQ(report.more.at("redirect_rate"), 2.0 / 32);
  EXPECT_EQ(report.more.at("redirect_early_share"), 1.0 / 32);
  EXPECT_EQ(report.more.at("redirect_late_max"), 10);
}

TEST(QualityTest, TinyEpochsGiveAReportWithoutTests) {
  for (const std::uint64_t samples : {1U, 2U, 3U, 5U, 17U}) {
    const QualityReport report =
        Measure(Options(samples, 2), {Uniform(samples, 1, 0), Uniform(samples, 1, 1)});
    EXPECT_EQ(report.verdict, "excellent") << samples << testing::PrintToString(report.failed);
  }
  EXPECT_EQ(Measure(Options(), {}).verdict, "broken");
}

TEST(QualityTest, WhatCannotBeIsRefusedByName) {
  const auto error = [](const std::function<void(QualityOptions&)>& change) {
    QualityOptions options = Options(100, 10);
    change(options);
    return std::string(QualityMeter::Make(std::move(options)).status().message());
  };
  EXPECT_THAT(error([](QualityOptions& o) { o.sample_count = 0; }),
              testing::HasSubstr("got 0 samples"));
  EXPECT_THAT(error([](QualityOptions& o) { o.sample_count = 0xffff'ffff; }),
              testing::HasSubstr("2^32 - 2"));
  EXPECT_THAT(error([](QualityOptions& o) { o.batch = 0; }), testing::HasSubstr("batches of 0"));
  EXPECT_THAT(error([](QualityOptions& o) { o.windows = {1}; }), testing::HasSubstr("window of 1"));
  EXPECT_THAT(error([](QualityOptions& o) { o.blocks = nullptr; }),
              testing::HasSubstr("got neither blocks nor labels"));
  EXPECT_THAT(error([](QualityOptions& o) { o.sample_count = 99; }),
              testing::HasSubstr("got blocks of 100 samples"));
  const auto far = std::make_shared<const std::vector<std::uint32_t>>(100, 0xffff'ffff);
  EXPECT_THAT(error([&](QualityOptions& o) { o.labels = far; }),
              testing::HasSubstr("got label 4294967295, must be below 1048576"));
  const auto short_table = std::make_shared<const std::vector<std::uint32_t>>(99);
  EXPECT_THAT(error([&](QualityOptions& o) { o.labels = short_table; }),
              testing::HasSubstr("99 labels"));
  EXPECT_THAT(error([&](QualityOptions& o) { o.costs = short_table; }),
              testing::HasSubstr("99 costs"));
}

}  // namespace
}  // namespace headrace
