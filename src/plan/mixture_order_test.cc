#include "plan/mixture_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

// What MakeMixtureOrder() gets.
struct MixtureRun {
  OrderOptions job;
  std::shared_ptr<const Mixture> mixture;
};

std::shared_ptr<const Mixture> MadeMixture(MixtureEnd end, std::vector<MixtureStage> stages,
                                           std::uint64_t epoch_samples = 64) {
  if (end != MixtureEnd::kNever) epoch_samples = 0;
  Result<Mixture> made =
      Mixture::Make({.sources = {{.name = "web", .samples = 37, .passes_max = {}},
                                 {.name = "code", .samples = 11, .passes_max = {}},
                                 {.name = "books", .samples = 5, .passes_max = {}}},
                     .stages = std::move(stages),
                     .end = end,
                     .epoch_samples = epoch_samples});
  return std::make_shared<const Mixture>(std::move(made).value());
}

MixtureRun RunOf(std::shared_ptr<const Mixture> mixture, std::uint32_t ranks,
                 std::uint64_t global_batch) {
  MixtureRun options;
  options.job = {.sample_count = mixture->epoch_samples(),
                 .batch_size = global_batch / ranks,
                 .world_size = ranks,
                 .ranks = ranks,
                 .seed = 9,
                 .epochs = 4};
  options.mixture = std::move(mixture);
  return options;
}

std::vector<Step> Steps(const MixtureRun& run, Position start = {}) {
  Result<std::unique_ptr<Order>> order = MakeMixtureOrder(run.job, run.mixture, start);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  std::vector<Step> steps;
  while (std::optional<Step> step = order.value()->Next()) steps.push_back(std::move(*step));
  return steps;
}

std::vector<std::uint64_t> SamplesOf(const Step& step) {
  std::vector<std::uint64_t> samples;
  for (const Delivery& delivery : step.deliveries) samples.push_back(Raw(delivery.sample));
  std::sort(samples.begin(), samples.end());
  return samples;
}

const std::vector<MixtureStage> kStages = {{.begin = 0, .weights = {5, 2, 1}},
                                           {.begin = 30, .weights = {1, 1, 0}},
                                           {.begin = 100, .weights = {3, 1, 2}}};

// A source's draws, in order, are its passes one after the other, each sample once a pass.
TEST(MixtureOrderTest, EachPassOfASourceHasEachSampleOnce) {
  for (const bool shuffle : {true, false}) {
    MixtureRun options = RunOf(MadeMixture(MixtureEnd::kNever, kStages), 2, 8);
    options.job.shuffle = shuffle;
    std::vector<std::vector<std::uint64_t>> of_source(3);
    std::uint64_t position = 0;
    for (const Step& step : Steps(options)) {
      std::vector<Draw> draws(step.deliveries.size());
      options.mixture->Draws(position, draws);
      position += draws.size();
      std::map<std::uint32_t, std::size_t> expected;
      std::map<std::uint32_t, std::size_t> found;
      for (const Draw& draw : draws) ++expected[draw.source];
      for (const std::uint64_t sample : SamplesOf(step)) {
        const std::uint32_t source = sample < 37 ? 0 : sample < 48 ? 1 : 2;
        ++found[source];
        of_source[source].push_back(sample);
      }
      ASSERT_EQ(found, expected);
    }
    ASSERT_EQ(position, 4 * 64U);
    const std::vector<std::uint64_t> sizes = {37, 11, 5};
    for (std::size_t source = 0; source < 3; ++source) {
      std::map<std::uint64_t, std::uint64_t> times;
      for (const std::uint64_t sample : of_source[source]) ++times[sample];
      const std::uint64_t passes = of_source[source].size() / sizes[source];
      EXPECT_EQ(times.size(), std::min<std::uint64_t>(sizes[source], of_source[source].size()));
      for (const auto& [sample, count] : times) {
        EXPECT_GE(count, passes);
        EXPECT_LE(count, passes + 1);
      }
    }
  }
}

TEST(MixtureOrderTest, StepsHaveTheSameSamplesOnAnyNumberOfRanksAndFromAnyStart) {
  for (const MixtureEnd end : {MixtureEnd::kNever, MixtureEnd::kFirst, MixtureEnd::kAll}) {
    const auto mixture = MadeMixture(end, kStages);
    const std::vector<Step> alone = Steps(RunOf(mixture, 1, 8));
    ASSERT_GT(alone.size(), 4U);
    for (const std::uint32_t ranks : {1U, 2U, 4U, 8U}) {
      const MixtureRun options = RunOf(mixture, ranks, 8);
      const std::vector<Step> steps = Steps(options);
      ASSERT_EQ(steps.size(), alone.size());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        std::vector<std::uint64_t> samples = SamplesOf(steps[i]);
        // The last batch of an epoch is padded to equal ranks.
        if (!steps[i].ends_epoch) {
          EXPECT_EQ(samples, SamplesOf(alone[i]));
        }
        ASSERT_EQ(samples.size() % ranks, 0U);
        const auto continued = Steps(options, {.epoch = steps[i].epoch, .step = steps[i].step});
        ASSERT_EQ(continued.size(), steps.size() - i);
        EXPECT_EQ(continued.front().deliveries, steps[i].deliveries);
        EXPECT_EQ(continued.back().deliveries, steps.back().deliveries);
      }
    }
  }
}

TEST(MixtureOrderTest, ARanksStreamIsItsPartOfTheJobs) {
  const auto mixture = MadeMixture(MixtureEnd::kNever, kStages, 60);
  const std::vector<Step> all = Steps(RunOf(mixture, 4, 16));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    MixtureRun options = RunOf(mixture, 4, 16);
    options.job.rank = rank;
    options.job.ranks = 1;
    const std::vector<Step> own = Steps(options);
    ASSERT_EQ(own.size(), all.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      std::vector<Delivery> expected;
      for (const Delivery& delivery : all[i].deliveries) {
        if (delivery.rank == rank) expected.push_back(delivery);
      }
      ASSERT_EQ(own[i].deliveries, expected);
      for (std::size_t slot = 0; slot < own[i].deliveries.size(); ++slot) {
        ASSERT_EQ(own[i].deliveries[slot].slot, slot);
      }
    }
  }
}

// In later epochs of a mixture that ends, a source goes on where it was.
TEST(MixtureOrderTest, EpochsOfAMixtureThatEndsContinueItsSources) {
  const auto mixture = MadeMixture(MixtureEnd::kFirst, {{.begin = 0, .weights = {1, 4, 1}}});
  MixtureRun options = RunOf(mixture, 1, 1);
  options.job.epochs = 3;
  std::map<std::uint64_t, int> times;
  for (const Step& step : Steps(options)) ++times[Raw(step.deliveries.front().sample)];
  const std::vector<std::uint64_t> counts = mixture->CountsBefore(*mixture->length());
  ASSERT_EQ(counts[1], 11U);  // "code" ends the epoch
  for (std::uint64_t sample = 37; sample < 48; ++sample) EXPECT_EQ(times[sample], 3);
  std::uint64_t web = 0;
  for (std::uint64_t sample = 0; sample < 37; ++sample) {
    EXPECT_LE(times[sample], 1);  // 3 epochs take less than a pass
    web += static_cast<std::uint64_t>(times[sample]);
  }
  EXPECT_EQ(web, 3 * counts[0]);
}

// A source's sequence depends on its name, not on which others there are.
TEST(MixtureOrderTest, ASourceHasItsOwnSequence) {
  const auto sequence = [](std::vector<MixtureSource> sources, const std::string& name) {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t samples = 0;
    for (const MixtureSource& source : sources) {
      if (source.name == name) {
        first = samples;
        last = samples + source.samples;
      }
      samples += source.samples;
    }
    std::vector<double> weights(sources.size(), 1);
    Result<Mixture> made = Mixture::Make({.sources = std::move(sources),
                                          .stages = {{.begin = 0, .weights = weights}},
                                          .epoch_samples = 300});
    MixtureRun options = RunOf(std::make_shared<const Mixture>(std::move(made).value()), 1, 1);
    options.job.epochs = 1;
    std::vector<std::uint64_t> found;
    for (const Step& step : Steps(options)) {
      const std::uint64_t sample = Raw(step.deliveries.front().sample);
      if (sample >= first && sample < last) found.push_back(sample - first);
    }
    found.resize(60);
    return found;
  };
  const MixtureSource web{.name = "web", .samples = 37, .passes_max = {}};
  const MixtureSource code{.name = "code", .samples = 11, .passes_max = {}};
  const MixtureSource books{.name = "books", .samples = 5, .passes_max = {}};
  EXPECT_EQ(sequence({web, code}, "web"), sequence({books, code, web}, "web"));
  EXPECT_NE(sequence({web, code}, "web"),
            sequence({{.name = "other", .samples = 37, .passes_max = {}}, code}, "other"));
}

TEST(MixtureOrderTest, RefusesAStartPastTheEpoch) {
  const MixtureRun run = RunOf(MadeMixture(MixtureEnd::kNever, kStages), 1, 8);
  EXPECT_EQ(MakeMixtureOrder(run.job, run.mixture, {.epoch = 0, .step = 8}).status().code(),
            StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace headrace
