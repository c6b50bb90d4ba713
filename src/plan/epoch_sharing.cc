#include "plan/epoch_sharing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

#include "plan/block_map.h"

namespace headrace {
namespace {

// Ordered pairs of different samples of one block, per sample: the mates of a mean sample.
double MeanMates(const BlockMap& blocks) {
  double pairs = 0;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const double count = blocks.block(i).count;
    pairs += count * (count - 1);
  }
  return pairs / static_cast<double>(blocks.sample_count());
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

// Pairs of a batch that are drawn from one pool, as a share of all its pairs. Position g is drawn
// from pool g mod pools.
double SamePoolShare(std::uint64_t batch, std::uint64_t pools) {
  if (batch < 2) return 0;
  const std::uint64_t rounds = batch / pools;
  const auto whole = static_cast<double>(rounds);
  const auto rest = static_cast<double>(batch % pools);
  const double pairs = rest * whole * (whole + 1) / 2 +
                       (static_cast<double>(pools) - rest) * whole * (whole - 1) / 2;
  const auto size = static_cast<double>(batch);
  return pairs / (size * (size - 1) / 2);
}

// Sharing of `epoch` if each draw is from `joined` samples.
double EpochSharing(const OrderRequest& request, double joined) {
  const BlockMap& blocks = *request.blocks;
  const auto n = static_cast<double>(blocks.sample_count());
  const double mates = MeanMates(blocks);
  const double by_chance = n > 1 ? mates / (n - 1) : 0;
  const std::uint64_t batch = request.job.batch_size * request.job.world_size;
  const auto pools = static_cast<std::uint64_t>(std::max(1.0, Number(request.parameters, "pools")));
  // Mean of exp(-d / M) over the distances d of a batch's pairs.
  const double x = static_cast<double>(batch) / joined;
  const double decay = x < 1e-4 ? 1 - x / 3 : 2 / (x * x) * (x - 1 + std::exp(-x));
  // An epoch begins with `joined` samples of whole blocks, and ends with as many: mates are
  // together more often there than in between.
  const double ends = (1 + std::exp(-2 * (n - joined) / joined)) / (4 * n);
  // A pool holds its share of the joined samples, so mates within it are that much nearer.
  const double together = mates * (1 / (2 * joined) + ends) * decay * static_cast<double>(pools) *
                          SamePoolShare(batch, pools);
  if (by_chance >= 1) return 0;  // the dataset is one block
  // Less than by chance: the formula does not hold if a batch is much of the dataset.
  return std::max(0.0, (together - by_chance) / (1 - by_chance));
}

}  // namespace

BatchSharing EpochBatchSharing(const OrderRequest& resolved) {
  const double joined = JoinedSamples(resolved);
  const double at_once = Number(resolved.parameters, "first_fill_permille") / 1000;
  return {.mean = EpochSharing(resolved, joined),
          .first = EpochSharing(resolved, std::max(1.0, joined * at_once))};
}

}  // namespace headrace
