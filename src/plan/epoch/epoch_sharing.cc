#include "plan/epoch/epoch_sharing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

#include "plan/block_map.h"
#include "plan/epoch/epoch_homes.h"

namespace headrace {
namespace {

// Ordered pairs of different samples of one block, per sample: the mates of a mean sample of a
// home.
double MeanMates(const BlockMap& blocks, const EpochHomes& homes, std::uint32_t home) {
  const EpochHomes::Blocks own = homes.blocks(home);
  double pairs = 0;
  for (std::uint64_t i = 0; i < own.size(); ++i) {
    const double count = blocks.block(own.At(i)).count;
    pairs += count * (count - 1);
  }
  return pairs / static_cast<double>(homes.samples()[home]);
}

double Number(const OrderParameters& parameters, std::string_view name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return 0;
  const auto* number = std::get_if<std::int64_t>(&found->second);
  return number == nullptr ? 0 : static_cast<double>(*number);
}

// Samples that a draw of the `epoch` order chooses from, over all pools. On average half a block a
// pool is free, because the next block does not fit.
double JoinedSamples(const OrderRequest& request) {
  const BlockMap& blocks = *request.blocks;
  const auto n = static_cast<double>(blocks.sample_count());
  const auto total_bytes =
      static_cast<double>(blocks.total_units()) * static_cast<double>(blocks.unit_bytes());
  const double resident = Number(request.parameters, "pool_bytes") / total_bytes * n;
  const double mean_block = n / static_cast<double>(blocks.block_count());
  const double free = std::max(1.0, Number(request.parameters, "pools")) * mean_block / 2;
  const double joined = 1 - Number(request.parameters, "join_permille") / 1000;
  return std::clamp((resident - free) * joined, 1.0, n);
}

// Pairs of a batch that are drawn from one pool of a home, `samples` of it from all pools of the
// home in turn.
double PairsOfOnePool(double samples, double pools) {
  const double whole = std::floor(samples / pools);
  const double rest = samples - whole * pools;
  return rest * whole * (whole + 1) / 2 + (pools - rest) * whole * (whole - 1) / 2;
}

// Two samples of a batch that are drawn from one pool: how often they are mates, if the pool draws
// each of its `samples` from `joined`, and a batch takes `batch` of them.
double MatesInAPool(double mates, double samples, double joined, double batch) {
  joined = std::clamp(joined, std::min(1.0, samples), samples);
  // Mean of exp(-d / M) over the distances d of a batch's pairs.
  const double x = batch / joined;
  const double decay = x < 1e-4 ? 1 - x / 3 : 2 / (x * x) * (x - 1 + std::exp(-x));
  // An epoch begins with `joined` samples of whole blocks, and ends with as many: mates are
  // together more often there than in between.
  const double ends = (1 + std::exp(-2 * (samples - joined) / joined)) / (4 * samples);
  return mates * (1 / (2 * joined) + ends) * decay;
}

// Sharing of `epoch` if each draw is from `joined` samples, over all pools.
double EpochSharing(const OrderRequest& request, const EpochHomes& homes, double joined) {
  const BlockMap& blocks = *request.blocks;
  const auto n = static_cast<double>(blocks.sample_count());
  const auto batch = static_cast<double>(request.job.batch_size * request.job.world_size);
  if (batch < 2) return 0;
  const double pools = std::max(1.0, Number(request.parameters, "pools"));
  const double own_pools = pools / homes.count();
  double mates = 0;
  double together = 0;
  for (std::uint32_t home = 0; home < homes.count(); ++home) {
    const double share = static_cast<double>(homes.samples()[home]) / n;
    const double own_mates = MeanMates(blocks, homes, home);
    const double of_pairs = PairsOfOnePool(batch * share, own_pools) / (batch * (batch - 1) / 2);
    together += of_pairs * MatesInAPool(own_mates, n * share / own_pools, joined / pools,
                                        batch * share / own_pools);
    mates += share * own_mates;
  }
  const double by_chance = n > 1 ? mates / (n - 1) : 0;
  if (by_chance >= 1) return 0;  // the dataset is one block
  // Less than by chance: the formula does not hold if a batch is much of the dataset.
  return std::max(0.0, (together - by_chance) / (1 - by_chance));
}

}  // namespace

std::optional<BatchSharing> EpochBatchSharing(const OrderRequest& resolved) {
  const auto count = static_cast<std::uint32_t>(Number(resolved.parameters, "homes"));
  const auto homes = EpochHomes::Make(*resolved.blocks, std::max(1U, count), resolved.homes);
  if (!homes.ok()) return std::nullopt;
  const double joined = JoinedSamples(resolved);
  const double at_once = Number(resolved.parameters, "first_fill_permille") / 1000;
  return BatchSharing{
      .mean = EpochSharing(resolved, *homes.value(), joined),
      .first = EpochSharing(resolved, *homes.value(), std::max(1.0, joined * at_once))};
}

}  // namespace headrace
