#include "plan/packing/micro_batches.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "plan/permutation.h"

namespace headrace {
namespace {

constexpr std::uint64_t kCostMax = std::uint64_t{1} << 40;
// The number of samples of a window is looked for until it is known to so many parts of itself.
constexpr std::uint64_t kNumberParts = 256;

Status Check(std::span<const std::uint32_t> tokens, std::span<const std::uint64_t> costs,
             const LevelOptions& options) {
  if (tokens.size() != costs.size()) {
    return InvalidArgument("micro-batches: {} numbers of tokens, {} costs; give one for each",
                           tokens.size(), costs.size());
  }
  if (options.tokens_max == 0 || options.global_batches == 0 || options.ranks == 0 ||
      options.rank_micro_batches == 0) {
    return InvalidArgument(
        "micro-batches: {} tokens, {} global batches, {} ranks, {} micro-batches a rank; all must "
        "be at least 1",
        options.tokens_max, options.global_batches, options.ranks, options.rank_micro_batches);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] > options.tokens_max) {
      return InvalidArgument(
          "micro-batches: sample {} has {} tokens, a micro-batch at most {}; give micro-batches "
          "more tokens, or split or leave out longer samples",
          i, tokens[i], options.tokens_max);
    }
    if (costs[i] >= kCostMax) {
      return InvalidArgument("micro-batches: the cost of sample {} is {}, must be below 2^40", i,
                             costs[i]);
    }
  }
  return Status();
}

class Leveler {
 public:
  Leveler(std::span<const std::uint32_t> tokens, std::span<const std::uint64_t> costs,
          std::uint32_t tokens_max, std::uint64_t count)
      : tokens_(tokens), costs_(costs), tokens_max_(tokens_max), count_(count) {}

  // The first `samples` of them in micro-batches; std::nullopt: one found no room.
  [[nodiscard]] std::optional<std::vector<MicroBatch>> Place(std::uint64_t samples) const {
    std::vector<std::uint32_t> costliest(samples);
    std::iota(costliest.begin(), costliest.end(), 0);
    std::stable_sort(costliest.begin(), costliest.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return costs_[a] > costs_[b]; });
    std::vector<MicroBatch> micro_batches(count_);
    using ByCost = std::pair<std::uint64_t, std::size_t>;
    std::priority_queue<ByCost, std::vector<ByCost>, std::greater<>> least;
    for (std::size_t i = 0; i < count_; ++i) least.emplace(0, i);
    std::vector<ByCost> full;  // for this sample; a smaller one may find room there
    for (const std::uint32_t sample : costliest) {
      full.clear();
      while (!least.empty() &&
             micro_batches[least.top().second].tokens + tokens_[sample] > tokens_max_) {
        full.push_back(least.top());
        least.pop();
      }
      if (least.empty()) return std::nullopt;
      const std::size_t taken = least.top().second;
      least.pop();
      MicroBatch& micro_batch = micro_batches[taken];
      micro_batch.samples.push_back(sample);
      micro_batch.tokens += tokens_[sample];
      micro_batch.cost += costs_[sample];
      least.emplace(micro_batch.cost, taken);
      for (const ByCost& each : full) least.push(each);
    }
    for (MicroBatch& each : micro_batches) std::sort(each.samples.begin(), each.samples.end());
    return micro_batches;
  }

  // As many samples as are known to find room.
  [[nodiscard]] std::pair<std::uint64_t, std::vector<MicroBatch>> PlaceMost() const {
    std::uint64_t most = 0;
    for (std::uint64_t sum = 0; most < tokens_.size(); ++most) {
      sum += tokens_[most];
      if (sum > count_ * tokens_max_) break;
    }
    // One sample a micro-batch always finds room.
    std::uint64_t least = std::min<std::uint64_t>(most, count_);
    std::optional<std::vector<MicroBatch>> placed = Place(most);
    if (placed.has_value()) return {most, std::move(*placed)};
    placed = Place(least);
    HEADRACE_CHECK(placed.has_value());
    while (most - least > 1 + least / kNumberParts) {
      const std::uint64_t middle = least + (most - least) / 2;
      if (std::optional<std::vector<MicroBatch>> more = Place(middle); more.has_value()) {
        least = middle;
        placed = std::move(more);
      } else {
        most = middle;
      }
    }
    return {least, std::move(*placed)};
  }

 private:
  const std::span<const std::uint32_t> tokens_;
  const std::span<const std::uint64_t> costs_;
  const std::uint64_t tokens_max_;
  const std::uint64_t count_;
};

void SortByCost(std::vector<MicroBatch>& micro_batches) {
  std::stable_sort(micro_batches.begin(), micro_batches.end(),
                   [](const MicroBatch& a, const MicroBatch& b) { return a.cost > b.cost; });
}

}  // namespace

Result<LeveledWindow> LevelWindow(std::span<const std::uint32_t> tokens,
                                  std::span<const std::uint64_t> costs, const LevelOptions& options,
                                  Prng order) {
  HEADRACE_RETURN_IF_ERROR(Check(tokens, costs, options));
  const std::uint64_t groups =
      std::uint64_t{options.global_batches} * options.rank_micro_batches;  // of `ranks` each
  auto [taken, micro_batches] =
      Leveler(tokens, costs, options.tokens_max, groups * options.ranks).PlaceMost();
  SortByCost(micro_batches);
  std::vector<std::uint32_t> place(groups);
  std::iota(place.begin(), place.end(), 0);
  Shuffle(place, order);
  LeveledWindow window{.global_batches = {}, .taken = taken};
  window.global_batches.resize(options.global_batches);
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const std::uint32_t group = place[i / options.ranks];
    window.global_batches[group / options.rank_micro_batches].push_back(
        std::move(micro_batches[i]));
  }
  return window;
}

std::vector<std::vector<std::uint32_t>> DealMicroBatches(std::span<const MicroBatch> micro_batches,
                                                         std::uint32_t ranks, Prng order) {
  HEADRACE_CHECK(ranks > 0 && micro_batches.size() % ranks == 0);
  std::vector<std::uint32_t> by_cost(micro_batches.size());
  std::iota(by_cost.begin(), by_cost.end(), 0);
  std::stable_sort(by_cost.begin(), by_cost.end(), [&](std::uint32_t a, std::uint32_t b) {
    return micro_batches[a].cost > micro_batches[b].cost;
  });
  const std::size_t turns = micro_batches.size() / ranks;
  std::vector<std::uint32_t> turn(turns);
  std::iota(turn.begin(), turn.end(), 0);
  Shuffle(turn, order);
  std::vector<std::vector<std::uint32_t>> dealt(turns);
  for (std::size_t i = 0; i < turns; ++i) {
    std::vector<std::uint32_t>& side_by_side = dealt[turn[i]];
    side_by_side.resize(ranks);
    for (std::uint32_t j = 0; j < ranks; ++j) {
      // Rotated, so that no rank always has the costliest.
      side_by_side[(j + i) % ranks] = by_cost[i * ranks + j];
    }
  }
  return dealt;
}

}  // namespace headrace
