#include "plan/placement/counted/frequency_theory.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

TEST(FrequencyTheoryTest, ThePapersNumbers) {
  // Dryden et al., SC'21, section 3: 31,635 of ImageNet-1k's samples.
  EXPECT_NEAR(1'281'167 * FrequentShare(90, 16, 0.8), 31'634.7, 0.1);
  // The thesis before it; (1 + delta) mean is a whole number, and "more than" is meant.
  EXPECT_NEAR(10'000 * FrequentShare(1000, 4, 0.1), 323, 0.5);
}

TEST(FrequencyTheoryTest, SmallCasesByCounting) {
  for (const std::uint64_t nodes : {1U, 2U, 3U, 4U}) {
    for (std::uint64_t epochs = 1; epochs <= 7; ++epochs) {
      for (const double delta : {0.0, 0.3, 0.5, 1.0, 3.0}) {
        std::uint64_t all = 1;
        for (std::uint64_t e = 0; e < epochs; ++e) all *= nodes;
        std::uint64_t frequent = 0;
        for (std::uint64_t code = 0; code < all; ++code) {
          std::uint64_t uses = 0;
          std::uint64_t rest = code;
          for (std::uint64_t e = 0; e < epochs; ++e, rest /= nodes) uses += rest % nodes == 0;
          const double limit = (1 + delta) * static_cast<double>(epochs);
          frequent += static_cast<double>(uses * nodes) > limit + 1e-9 ? 1 : 0;
        }
        ASSERT_NEAR(FrequentShare(epochs, nodes, delta),
                    static_cast<double>(frequent) / static_cast<double>(all), 1e-12)
            << epochs << " epochs, " << nodes << " nodes, delta " << delta;
      }
    }
  }
}

TEST(FrequencyTheoryTest, EpochsShuffledByOurGeneratorAgree) {
  constexpr std::uint64_t kSamples = 60'000;
  constexpr std::uint64_t kNodes = 16;
  std::vector<std::uint32_t> uses(kSamples);  // by node 0
  for (std::uint64_t epoch = 0; epoch < 90; ++epoch) {
    const Permutation order(kSamples, 3, epoch, RandomStream::kOrder);
    for (std::uint64_t i = 0; i < kSamples; i += kNodes) ++uses[order.At(i)];
  }
  const auto frequent = std::ranges::count_if(uses, [](std::uint32_t n) { return n > 10; });
  const double expected = kSamples * FrequentShare(90, kNodes, 0.8);
  EXPECT_NEAR(static_cast<double>(frequent), expected, 4 * std::sqrt(expected));
}

// Calls visit(counts) for every way to share `epochs` uses among nodes.
template <typename Visit>
void ForCounts(std::vector<std::uint64_t>& counts, std::size_t node, std::uint64_t left,
               const Visit& visit) {
  if (node + 1 == counts.size()) {
    counts[node] = left;
    visit(counts);
    return;
  }
  for (counts[node] = 0; counts[node] <= left; ++counts[node]) {
    ForCounts(counts, node + 1, left - counts[node], visit);
  }
}

TEST(FrequencyTheoryTest, WhoeverUsesASampleOftenLeavesFewUsesToSomeOther) {
  for (std::size_t nodes = 2; nodes <= 5; ++nodes) {
    for (std::uint64_t epochs = 1; epochs <= 9; ++epochs) {
      const double mean = static_cast<double>(epochs) / static_cast<double>(nodes);
      std::vector<std::uint64_t> all(nodes);
      std::vector<bool> most_met(epochs + 1);  // bounds that are met by some counts
      std::vector<bool> least_met(epochs + 1);
      ForCounts(all, 0, epochs, [&](const std::vector<std::uint64_t>& counts) {
        const UsesElsewhere bound = BoundElsewhere(epochs, nodes, counts[0]);
        const std::uint64_t least = *std::min_element(counts.begin() + 1, counts.end());
        const std::uint64_t most = *std::max_element(counts.begin() + 1, counts.end());
        ASSERT_LE(least, bound.some_at_most);
        ASSERT_GE(most, bound.some_at_least);
        if (most == bound.some_at_least) least_met[counts[0]] = true;
        if (least + 1 >= bound.some_at_most) most_met[counts[0]] = true;
        // As the paper writes it, for every delta that gives this number of uses.
        const auto others = static_cast<double>(nodes - 1);
        for (std::uint64_t step = 0; step <= 64 * (nodes - 1); ++step) {
          const double delta = static_cast<double>(step) / 64;
          if (std::ceil((1 + delta) * mean) == static_cast<double>(counts[0])) {
            ASSERT_LE(static_cast<double>(least), std::ceil((others - delta) / others * mean));
          }
          if (delta <= 1 && std::floor((1 - delta) * mean) == static_cast<double>(counts[0])) {
            ASSERT_GE(static_cast<double>(most), std::floor((others + delta) / others * mean));
          }
        }
      });
      for (std::uint64_t uses = 0; uses <= epochs; ++uses) {
        ASSERT_TRUE(most_met[uses]);
        // Uses that the others cannot share evenly put one of them above.
        if ((epochs - uses) % (nodes - 1) == 0) {
          ASSERT_TRUE(least_met[uses]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace
