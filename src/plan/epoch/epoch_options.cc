#include "plan/epoch/epoch_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "plan/epoch/epoch_parameters.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr std::uint64_t kGlobalBatchMax = std::uint64_t{1} << 28;

// A parcel's samples are counted from its first one on, in 32 bits.
constexpr std::uint64_t kExchangedSamplesMax = 0xffff'ffff;

std::uint64_t GlobalBatch(const OrderOptions& job) { return job.batch_size * job.world_size; }

Status CheckPermille(const char* name, std::uint32_t value, std::uint32_t most) {
  if (value <= most) return Status();
  return InvalidArgument("order epoch: {}: got {}, must be in [0, {}]", name, value, most);
}

// Rounded for people, and exact.
std::string BothBytes(std::uint64_t bytes) {
  const std::string rounded = FormatBytes(bytes);
  return bytes < kKiB ? rounded : fmt::format("{} ({})", rounded, Counted(bytes, "byte"));
}

// Every pool has a home, and a block there; with an exchange every node is one.
Status CheckHomes(const EpochOrderOptions& options) {
  const std::uint32_t homes = options.home_count();
  const OrderOptions& job = options.job;
  if (options.pools % homes != 0) {
    return InvalidArgument(
        "order epoch: pools: got {}, must be a multiple of homes ({}): every home has equally many",
        options.pools, homes);
  }
  if (homes > 1) {
    if (GlobalBatch(job) > kGlobalBatchMax) {
      return InvalidArgument(
          "batch_size {} x world_size {} with order epoch and homes={}: every node deals the whole "
          "global batch, which may have {} at most; lower batch_size, or use homes=1",
          job.batch_size, job.world_size, homes, Counted(kGlobalBatchMax, "sample"));
    }
    const std::uint32_t least = options.homes->least_home();
    const std::uint64_t blocks = options.homes->blocks(least).size();
    if (options.pools / homes > blocks) {
      return InvalidArgument(
          "order epoch: pools: got {}, {} a home, but node {} is the home of {} only; lower pools "
          "to "
          "{}, or make the blocks smaller",
          options.pools, options.pools / homes, least, Counted(blocks, "block"), blocks * homes);
    }
  }
  if (!job.exchange) return Status();
  if (job.world_size % job.ranks != 0 || job.rank % job.ranks != 0) {
    return InvalidArgument(
        "order epoch: ranks {} to {} of {} exchange samples as one node, but nodes of {} ranks "
        "begin at multiples of it; give every node equally many ranks",
        job.rank, job.rank + job.ranks - 1, job.world_size, job.ranks);
  }
  if (homes != job.nodes()) {
    return InvalidArgument(
        "order epoch: homes: got {}, must be {}, the number of nodes, as each reads its own blocks "
        "only",
        homes, job.nodes());
  }
  if (job.sample_count > kExchangedSamplesMax) {
    return InvalidArgument(
        "order epoch: nodes exchange samples of a dataset of at most {}, this one has {}; use "
        "storage that every node can read",
        Counted(kExchangedSamplesMax, "sample"), job.sample_count);
  }
  return Status();
}

}  // namespace

std::uint64_t DeliveredInEpoch(const OrderOptions& job, std::uint64_t steps_per_epoch) {
  return job.drop_last ? steps_per_epoch * GlobalBatch(job) : job.sample_count;
}

Status CheckEpochInputs(const OrderOptions& job, const BlockMap* blocks) {
  HEADRACE_RETURN_IF_ERROR(StepsPerEpoch(job).status());
  if (!job.shuffle) {
    return InvalidArgument(
        "order epoch: shuffle=False, but samples are drawn at random from pools; use order 'exact' "
        "to have them in sequence, or shuffle=True");
  }
  if (blocks == nullptr) {
    return InvalidArgument("order epoch: needs a map of blocks; use order 'exact' or give blocks");
  }
  if (blocks->sample_count() != job.sample_count) {
    return InvalidArgument(
        "order epoch: the map of blocks holds {}, the job has {}; both must describe one dataset",
        Counted(blocks->sample_count(), "sample"), job.sample_count);
  }
  return Status();
}

Status CheckEpochPools(const EpochOrderOptions& options) {
  const BlockMap& blocks = *options.blocks;
  if (options.pools < 1 || options.pools > blocks.block_count()) {
    return InvalidArgument(
        "order epoch: pools: got {}, must be in [1, {}], the number of blocks; lower pools or make "
        "the blocks smaller",
        options.pools, blocks.block_count());
  }
  HEADRACE_RETURN_IF_ERROR(CheckHomes(options));
  HEADRACE_RETURN_IF_ERROR(
      CheckPermille("join_permille", options.join_permille, kEpochJoinPermilleMax));
  HEADRACE_RETURN_IF_ERROR(
      CheckPermille("first_fill_permille", options.first_fill_permille, kPermille));
  HEADRACE_RETURN_IF_ERROR(
      CheckPermille("first_join_permille", options.first_join_permille, kPermille));
  const std::uint64_t unit = blocks.unit_bytes();
  if (options.pool_units > std::uint64_t{kEpochPoolBytesMax} / unit) {
    return InvalidArgument(
        "order epoch: pool_bytes: got {} units of {}, must be at most 2^56 bytes",
        options.pool_units, Counted(unit, "byte"));
  }
  const std::uint64_t budget = options.pool_units / options.pools;
  const std::uint64_t least =
      LeastEpochPool(options.job, blocks, options.pools, options.homes.get());
  if (budget >= least) return Status();
  const std::uint64_t two_blocks = 2 * blocks.largest_block();
  const std::string needed =
      least == two_blocks
          ? "two of the largest blocks (" + FormatBytes(blocks.largest_block() * unit) + " each)"
          : "its share of a global batch of " + Counted(GlobalBatch(options.job), "sample");
  return InvalidArgument(
      "order epoch: pool_bytes: {} is too little for {}: a pool needs at least {}, {}; give pool= "
      "at least {}{}",
      BothBytes(options.pool_units * unit), Counted(options.pools, "pool"), BothBytes(least * unit),
      needed, Counted(options.pools * least * unit, "byte"),
      options.pools == 1 ? ", or make the blocks smaller" : ", or lower pools=");
}

EpochPoolPlan::Options EpochPoolOptions(const EpochOrderOptions& options, std::uint32_t home,
                                        std::uint64_t delivered) {
  const std::uint64_t budget = options.pool_units / options.pools;
  const auto permille_of = [](std::uint64_t value, std::uint32_t permille) {
    return static_cast<std::uint64_t>(Uint128{value} * permille / kPermille);
  };
  const std::uint64_t full_join = budget - permille_of(budget, options.join_permille);
  const auto draws_of = [&](std::uint32_t permille) {  // draws that empty this share of a pool
    return std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(Uint128{budget} * options.job.sample_count * permille /
                                      (Uint128{kPermille} * options.blocks->total_units())));
  };
  return {
      .blocks = options.blocks,
      .seed = options.job.seed,
      .bijection_from = options.job.bijection_from,
      .stretches = {.delivered = delivered, .pools = options.pools / options.home_count()},
      .homes = options.homes,
      .home = home,
      .budget = budget,
      .full_join = full_join,
      .full_join_of_run = permille_of(full_join, options.first_fill_permille),
      .first_join = options.first_join_permille == 0 ? 0 : draws_of(options.first_join_permille),
      .delay = draws_of(options.join_permille)};
}

void EpochReadCounts::Add(const BlockRead& read) {
  if (read.again) {
    ++blocks_again_;
    samples_again_ += read.kept.empty() ? read.count : read.kept.size();
  } else {
    ++blocks_;
    samples_ += read.count;
  }
}

std::map<std::string, double> EpochReadCounts::counters(std::uint64_t early_joins,
                                                        std::uint64_t resident_peak) const {
  return {{"blocks_read", static_cast<double>(blocks_)},
          {"samples_read", static_cast<double>(samples_)},
          {"blocks_read_again", static_cast<double>(blocks_again_)},
          {"samples_read_again", static_cast<double>(samples_again_)},
          {"early_joins", static_cast<double>(early_joins - early_joins_replayed_)},
          {"resident_units_peak", static_cast<double>(resident_peak)}};
}

DueReads::DueReads(std::uint64_t positions, const OrderOptions& job)
    : steps_(std::max<std::uint64_t>(1, positions / GlobalBatch(job))) {}

std::uint64_t DueReads::Next(std::uint64_t reads) {
  issued_by_step_.push_back(reads);
  if (issued_by_step_.size() <= steps_) return 0;
  const std::uint64_t due = issued_by_step_.front();
  issued_by_step_.pop_front();
  return due;
}

}  // namespace headrace
