#include "plan/mixture/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

MixtureOptions RandomMixture(std::uint64_t seed) {
  Prng prng(seed, 2, RandomStream::kOrder);
  MixtureOptions options;
  const std::size_t sources = 1 + prng.Below(6);
  options.end = static_cast<MixtureEnd>(prng.Below(3));
  for (std::size_t i = 0; i < sources; ++i) {
    MixtureSource source{.name = "source" + std::to_string(i), .samples = 1 + prng.Below(30)};
    if (prng.Below(2) == 0) source.passes_max = 1 + prng.Below(3);
    options.sources.push_back(std::move(source));
  }
  std::uint64_t begin = 0;
  for (std::size_t stage = 1 + prng.Below(4); stage-- > 0; begin += 1 + prng.Below(40)) {
    std::vector<double> weights(sources);
    for (double& weight : weights) weight = prng.Below(4) == 0 ? 0 : prng.Uniform();
    weights[prng.Below(sources)] = 0.5;
    options.stages.push_back({.begin = begin, .weights = std::move(weights)});
  }
  return options;
}

// The same mixture, position by position. Its trees are begun again at each change.
class MixtureModel {
 public:
  explicit MixtureModel(MixtureOptions options)
      : options_(std::move(options)), counts_(options_.sources.size()) {}

  // std::nullopt: the mixture has ended.
  std::optional<Draw> Next() {
    if (Ended()) return std::nullopt;
    std::vector<double> weights = WeightsNow();
    if (weights != weights_ || StageNow() != stage_) {
      weights_ = weights;
      stage_ = StageNow();
      tree_.emplace(WholeWeights(weights));
      begin_ = position_;
    }
    const std::uint32_t source = tree_->At(position_ - begin_).source;
    ++position_;
    return Draw{.source = source, .number = counts_[source]++};
  }

 private:
  [[nodiscard]] std::uint64_t PassesOf(std::size_t i) const {
    return options_.sources[i].samples * options_.sources[i].passes_max.value_or(1);
  }
  [[nodiscard]] bool Ended() const {
    bool all = true;        // have had their passes
    bool any_left = false;  // that may be drawn
    bool first = false;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const bool had = counts_[i] >= PassesOf(i);
      all = all && had;
      first = first || had;
      any_left = any_left || !(had && options_.sources[i].passes_max);
    }
    if (!any_left) return true;
    if (options_.end == MixtureEnd::kNever) return false;
    return options_.end == MixtureEnd::kAll ? all : first;
  }
  [[nodiscard]] std::size_t StageNow() const {
    std::size_t stage = 0;
    while (stage + 1 < options_.stages.size() && options_.stages[stage + 1].begin <= position_) {
      ++stage;
    }
    return stage;
  }
  [[nodiscard]] std::vector<double> WeightsNow() const {
    std::vector<double> weights = options_.stages[StageNow()].weights;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (options_.sources[i].passes_max && counts_[i] >= PassesOf(i)) weights[i] = 0;
    }
    return weights;
  }

  MixtureOptions options_;
  std::vector<std::uint64_t> counts_;
  std::vector<double> weights_;
  std::size_t stage_ = 0;
  std::optional<SplitTree> tree_;
  std::uint64_t begin_ = 0;
  std::uint64_t position_ = 0;
};

TEST(MixtureTest, IsWhatTheModelReplays) {
  int ends = 0;
  int made = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    MixtureOptions options = RandomMixture(seed);
    Result<Mixture> mixture = Mixture::Make(options);
    if (!mixture.ok() && mixture.status().message().find("goes on for ever") != std::string::npos) {
      options.epoch_samples = 100;
      mixture = Mixture::Make(options);
    }
    if (!mixture.ok()) continue;  // see MixtureErrorsTest
    ++made;
    MixtureModel model(options);
    std::vector<std::uint64_t> counts(options.sources.size());
    const std::uint64_t length = mixture.value().length().value_or(500);
    std::vector<Draw> draws(std::min<std::uint64_t>(length, 500));
    mixture.value().Draws(0, draws);
    for (std::uint64_t position = 0; position < draws.size(); ++position) {
      ASSERT_EQ(mixture.value().CountsBefore(position), counts) << seed;
      const std::optional<Draw> draw = model.Next();
      ASSERT_TRUE(draw.has_value()) << seed << " at " << position;
      ASSERT_EQ(draws[position], *draw) << seed << " at " << position;
      ASSERT_EQ(mixture.value().At(position), *draw) << seed;
      ASSERT_EQ(mixture.value().PositionOf(*draw), position) << seed;
      ++counts[draw->source];
    }
    if (!mixture.value().length().has_value() || length > draws.size()) continue;
    ++ends;
    ASSERT_EQ(model.Next(), std::nullopt) << seed;
    ASSERT_EQ(mixture.value().CountsBefore(length), counts) << seed;
    for (std::uint32_t i = 0; i < counts.size(); ++i) {
      ASSERT_EQ(mixture.value().PositionOf({.source = i, .number = counts[i]}), std::nullopt);
    }
  }
  EXPECT_GT(made, 2000);
  EXPECT_GT(ends, 1000);
}

MixtureOptions Two(std::vector<double> weights) {
  return {.sources = {{.name = "web", .samples = 100, .passes_max = {}},
                      {.name = "code", .samples = 50, .passes_max = {}}},
          .stages = {{.begin = 0, .weights = std::move(weights)}},
          .epoch_samples = 100};
}

TEST(MixtureTest, ASourceThatEndsLeavesItsWeightToTheOthers) {
  MixtureOptions options = Two({1, 1});
  options.sources[1].passes_max = 2;
  const Result<Mixture> mixture = Mixture::Make(options);
  ASSERT_TRUE(mixture.ok()) << mixture.status().ToString();
  EXPECT_EQ(mixture.value().length(), std::nullopt);
  EXPECT_EQ(mixture.value().CountsBefore(400), (std::vector<std::uint64_t>{300, 100}));
}

TEST(MixtureTest, EndsWithTheFirstOrTheLastSource) {
  MixtureOptions options = Two({1, 1});
  options.end = MixtureEnd::kFirst;
  options.epoch_samples = 0;
  Result<Mixture> mixture = Mixture::Make(options);
  ASSERT_TRUE(mixture.ok());
  EXPECT_EQ(mixture.value().epoch_samples(), mixture.value().length());
  const std::uint64_t first = mixture.value().length().value();
  EXPECT_EQ(mixture.value().CountsBefore(first), (std::vector<std::uint64_t>{first - 50, 50}));
  options.end = MixtureEnd::kAll;
  mixture = Mixture::Make(options);
  ASSERT_TRUE(mixture.ok());
  const std::uint64_t last = mixture.value().length().value();
  EXPECT_EQ(mixture.value().CountsBefore(last), (std::vector<std::uint64_t>{100, last - 100}));
}

// What a change of weights keeps: the draws before it, and each source's sequence after it.
TEST(MixtureTest, AChangeOfWeightsChangesNothingBeforeIt) {
  MixtureOptions options = Two({3, 1});
  const Result<Mixture> before = Mixture::Make(options);
  options.stages.push_back({.begin = 123, .weights = {1, 1}});
  options.stages.push_back({.begin = 200, .weights = {0, 1}});
  const Result<Mixture> after = Mixture::Make(options);
  ASSERT_TRUE(before.ok() && after.ok());
  for (std::uint64_t position = 0; position < 123; ++position) {
    EXPECT_EQ(after.value().At(position), before.value().At(position));
  }
  std::vector<std::uint64_t> counts = before.value().CountsBefore(123);
  for (std::uint64_t position = 123; position < 400; ++position) {
    const Draw draw = after.value().At(position);
    EXPECT_EQ(draw.number, counts[draw.source]++);
    if (position >= 200) {
      EXPECT_EQ(draw.source, 1U);
    }
  }
}

TEST(MixtureTest, ManySourcesAreMadeAndEnteredAtOnce) {
  MixtureOptions options;
  MixtureStage stage;
  for (int i = 0; i < 1000; ++i) {
    options.sources.push_back({.name = std::to_string(i), .samples = 1'000'000, .passes_max = {}});
    stage.weights.push_back(1.0 / (i + 1));
  }
  options.stages.push_back(stage);
  options.epoch_samples = 1;
  const Result<Mixture> mixture = Mixture::Make(options);
  ASSERT_TRUE(mixture.ok());
  const std::uint64_t position = 999'999'999'999;
  const Draw draw = mixture.value().At(position);
  EXPECT_EQ(mixture.value().CountsBefore(position)[draw.source], draw.number);
  EXPECT_EQ(mixture.value().PositionOf(draw), position);
}

TEST(MixtureTest, TheHashIsOfEveryOption) {
  const auto hash = [](const MixtureOptions& options) {
    return Mixture::Make(options).value().Hash();
  };
  const std::string before = hash(Two({1, 1}));
  EXPECT_EQ(before, "15df283c3908dd24");
  std::vector<MixtureOptions> others(6, Two({1, 1}));
  others[0].sources[0].name = "other";
  others[1].sources[0].samples = 99;
  others[2].sources[0].passes_max = 9;
  others[3].stages[0].weights = {1, 2};
  others[4].epoch_samples = 101;
  others[5].stages.push_back({.begin = 5, .weights = {1, 1}});
  for (const MixtureOptions& other : others) EXPECT_NE(hash(other), before);
}

TEST(MixtureTest, WholeWeightsKeepProportions) {
  EXPECT_EQ(WholeWeights(std::vector<double>{0.5, 0, 0.25}),
            (std::vector<std::uint64_t>{std::uint64_t{1} << 57, 0, std::uint64_t{1} << 56}));
  const std::vector<std::uint64_t> tiny = WholeWeights(std::vector<double>{1e-300, 1e300});
  EXPECT_EQ(tiny[0], 1U);
  EXPECT_EQ(WholeWeights(std::vector<double>{5e-324})[0], std::uint64_t{1} << 59);
}

void ExpectRefused(const MixtureOptions& options, const std::string& text) {
  const Result<Mixture> mixture = Mixture::Make(options);
  ASSERT_FALSE(mixture.ok());
  EXPECT_EQ(mixture.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(mixture.status().message().find(text), std::string::npos) << mixture.status().message();
}

TEST(MixtureErrorsTest, NameTheSourceAndTheWayOut) {
  ExpectRefused({}, "no source");
  ExpectRefused(Two({1}), "1 weight for 2 sources");
  ExpectRefused(Two({0, 0}), "all weights from position 0 on are 0");
  ExpectRefused(Two({1, -1}), "weight of source 'code' is -1");
  ExpectRefused(Two({1, std::numeric_limits<double>::quiet_NaN()}), "weight of source 'code'");
  ExpectRefused(Two({1, std::numeric_limits<double>::infinity()}), "weight of source 'code'");
  MixtureOptions options = Two({1, 1});
  options.sources[0].samples = 0;
  ExpectRefused(options, "source 'web' has no samples");
  options = Two({1, 1});
  options.sources[1].name = "web";
  ExpectRefused(options, "two sources have the name 'web'");
  options = Two({1, 1});
  options.sources[0].passes_max = 0;
  ExpectRefused(options, "source 'web' may have 0 passes");
  options = Two({1, 1});
  options.stages.push_back({.begin = 0, .weights = {1, 1}});
  ExpectRefused(options, "stage 1 begins at position 0");
  options = Two({1, 0});
  options.end = MixtureEnd::kAll;
  ExpectRefused(options, "never ends");
  options = Two({1, 1});
  options.epoch_samples = 0;
  ExpectRefused(options, "goes on for ever");
  options.epoch_samples = (std::uint64_t{1} << 38) + 1;
  ExpectRefused(options, "at most 2^38");
  options.end = MixtureEnd::kFirst;
  options.epoch_samples = 7;
  ExpectRefused(options, "an epoch of 7 samples, but it ends after");
  options = Two({1, 0});
  options.sources[0].passes_max = 1;
  ExpectRefused(options, "at position 100 all sources have ended");
}

}  // namespace
}  // namespace headrace
