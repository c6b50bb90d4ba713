#include "plan/packing/micro_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "gtest/gtest.h"

namespace headrace {
namespace {

Prng DrawnOrder(std::uint64_t seed) { return Prng(seed, 0, RandomStream::kOrder); }

std::vector<std::uint32_t> SamplesOf(const std::vector<MicroBatch>& micro_batches) {
  std::vector<std::uint32_t> samples;
  for (const MicroBatch& each : micro_batches) {
    samples.insert(samples.end(), each.samples.begin(), each.samples.end());
  }
  std::sort(samples.begin(), samples.end());
  return samples;
}

TEST(MicroBatchesTest, EverySampleComesOnceAndFits) {
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    Prng prng = DrawnOrder(seed);
    LevelOptions options;
    options.tokens_max = static_cast<std::uint32_t>(1 + prng.Below(200));
    options.global_batches = static_cast<std::uint32_t>(1 + prng.Below(4));
    options.ranks = static_cast<std::uint32_t>(1 + prng.Below(5));
    options.rank_micro_batches = static_cast<std::uint32_t>(1 + prng.Below(4));
    std::vector<std::uint32_t> tokens(prng.Below(400));
    std::vector<std::uint64_t> costs(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::uint32_t>(prng.Below(options.tokens_max + 1));
      costs[i] = seed % 2 == 0 ? tokens[i] + tokens[i] * tokens[i] / 64 : prng.Below(1000);
    }
    const Result<LeveledWindow> window = LevelWindow(tokens, costs, options, DrawnOrder(seed));
    ASSERT_TRUE(window.ok()) << window.status().ToString();
    ASSERT_EQ(window.value().global_batches.size(), options.global_batches);
    std::vector<std::uint32_t> samples;
    for (const std::vector<MicroBatch>& global_batch : window.value().global_batches) {
      ASSERT_EQ(global_batch.size(), options.ranks * options.rank_micro_batches);
      for (const MicroBatch& each : global_batch) {
        std::uint64_t sum = 0;
        std::uint64_t cost = 0;
        for (const std::uint32_t sample : each.samples) {
          sum += tokens[sample];
          cost += costs[sample];
        }
        ASSERT_EQ(each.tokens, sum);
        ASSERT_EQ(each.cost, cost);
        ASSERT_LE(sum, options.tokens_max);
      }
      const std::vector<std::uint32_t> some = SamplesOf(global_batch);
      samples.insert(samples.end(), some.begin(), some.end());
    }
    std::sort(samples.begin(), samples.end());
    std::vector<std::uint32_t> first(window.value().taken);
    std::iota(first.begin(), first.end(), 0);
    ASSERT_EQ(samples, first);
    const std::uint64_t always =
        std::min<std::uint64_t>(tokens.size(), std::uint64_t{options.global_batches} *
                                                   options.ranks * options.rank_micro_batches);
    ASSERT_GE(window.value().taken, always);
  }
}

// Sum over micro-batches of the costliest rank's cost, over the mean of the ranks.
double Unevenness(const LeveledWindow& window, std::uint32_t ranks) {
  double largest = 0;
  double all = 0;
  for (const std::vector<MicroBatch>& global_batch : window.global_batches) {
    for (const auto& side_by_side : DealMicroBatches(global_batch, ranks, DrawnOrder(3))) {
      std::uint64_t most = 0;
      for (const std::uint32_t each : side_by_side) {
        most = std::max(most, global_batch[each].cost);
        all += static_cast<double>(global_batch[each].cost);
      }
      largest += static_cast<double>(most);
    }
  }
  return largest * ranks / all;
}

// The case: 8 ranks, 4 micro-batches of 8,192 tokens, log-normal lengths of sigma 1, cost
// L + L^2 / 4096.
TEST(MicroBatchesTest, WorkIsLevel) {
  constexpr std::uint32_t kTokens = 8192;
  Prng prng = DrawnOrder(4);
  const auto length = [&prng] {
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += prng.Uniform();
    return static_cast<std::uint32_t>(std::clamp(700 * std::exp(normal), 16.0, 8192.0));
  };
  for (const auto& [global_batches, limit] : {std::pair{1U, 1.20}, {8U, 1.03}}) {
    double unevenness = 0;
    double filled = 0;
    constexpr int kWindows = 10;
    for (int i = 0; i < kWindows; ++i) {
      std::vector<std::uint32_t> tokens;
      std::vector<std::uint64_t> costs;
      for (std::size_t j = 0; j < std::size_t{400} * global_batches; ++j) {
        tokens.push_back(length());
        const std::uint64_t wide = tokens.back();
        costs.push_back(wide * 4096 + wide * wide);
      }
      const LevelOptions options{.tokens_max = kTokens,
                                 .global_batches = global_batches,
                                 .ranks = 8,
                                 .rank_micro_batches = 4};
      const Result<LeveledWindow> window = LevelWindow(tokens, costs, options, DrawnOrder(1));
      ASSERT_TRUE(window.ok());
      ASSERT_LT(window.value().taken, tokens.size());
      unevenness += Unevenness(window.value(), 8) / kWindows;
      double taken = 0;
      for (std::size_t j = 0; j < window.value().taken; ++j) taken += tokens[j];
      filled += taken / (32.0 * kTokens * global_batches) / kWindows;
    }
    EXPECT_LT(unevenness, limit) << global_batches;
    EXPECT_GT(filled, 0.93) << global_batches;
    RecordProperty("unevenness of " + std::to_string(global_batches), std::to_string(unevenness));
    RecordProperty("filled of " + std::to_string(global_batches), std::to_string(filled));
  }
}

TEST(MicroBatchesTest, OtherRanksGetTheSameGlobalBatches) {
  Prng prng = DrawnOrder(8);
  std::vector<std::uint32_t> tokens(600);
  std::vector<std::uint64_t> costs(600);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint32_t>(1 + prng.Below(100));
    costs[i] = std::uint64_t{tokens[i]} * tokens[i];
  }
  const LevelOptions options{
      .tokens_max = 500, .global_batches = 2, .ranks = 4, .rank_micro_batches = 4};
  const Result<LeveledWindow> window = LevelWindow(tokens, costs, options, DrawnOrder(1));
  ASSERT_TRUE(window.ok());
  for (const std::vector<MicroBatch>& global_batch : window.value().global_batches) {
    for (const std::uint32_t ranks : {1U, 2U, 4U, 8U, 16U}) {
      std::vector<std::uint32_t> all;
      for (const auto& side_by_side : DealMicroBatches(global_batch, ranks, DrawnOrder(5))) {
        ASSERT_EQ(side_by_side.size(), ranks);
        all.insert(all.end(), side_by_side.begin(), side_by_side.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<std::uint32_t> expected(16);
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected);
    }
  }
}

void ExpectRefused(const std::vector<std::uint32_t>& tokens,
                   const std::vector<std::uint64_t>& costs, const LevelOptions& options,
                   const std::string& text) {
  const Status status = LevelWindow(tokens, costs, options, DrawnOrder(1)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

TEST(MicroBatchesTest, RefusesWhatDoesNotFit) {
  ExpectRefused({9}, {1}, {.tokens_max = 8}, "sample 0 has 9 tokens, a micro-batch at most 8");
  ExpectRefused({9}, {}, {.tokens_max = 8}, "1 numbers of tokens, 0 costs");
  ExpectRefused({}, {}, {.tokens_max = 0}, "at least 1");
  ExpectRefused({1}, {std::uint64_t{1} << 40}, {.tokens_max = 8}, "must be below 2^40");
}

}  // namespace
}  // namespace headrace
