#include "plan/epoch/epoch_parameters.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/units.h"

namespace headrace {
namespace {

__extension__ using Uint128 = unsigned __int128;

// A pool holds at least 1 / kShareLeast of the dataset, to mix windows much longer than a batch,
// ...
constexpr std::uint64_t kShareLeast = 10;
// ... and at most 1 / kShareMost of it, or kBytesOfSmallData if that is more.
constexpr std::uint64_t kShareMost = 4;
constexpr std::uint64_t kBytesOfSmallData = 256 * kMiB;
// Between the two it is just large enough to keep the variance inflation of a batch at or below 1 +
// 1 / kInflationInverse if all samples of a block are alike.
constexpr std::uint64_t kInflationInverse = 10;

// Candidates: divisors of the first, so that the order does not depend on most world sizes.
constexpr std::array<std::uint64_t, 10> kPools = {48, 24, 16, 12, 8, 6, 4, 3, 2, 1};
// A pool must hold this many mean blocks; otherwise there are fewer pools.
constexpr std::uint64_t kBlocksOfAPool = 16;
// As kBlocksOfAPool, if fewer pools would have memory for less.
constexpr std::uint64_t kBlocksOfATightPool = 4;

// Bytes that join before the first draw of a run: 64 MiB take a quarter of a second at 256 MiB/s.
constexpr std::uint64_t kFirstFillBytes = 64 * kMiB;

// The rest of the first fill joins while this share of a pool is drawn, so that the beginning of a
// run soon mixes as well as the rest; ...
constexpr std::uint64_t kFirstJoinPermille = 250;
// ... but over at least this many batches, so that the first one does not wait for much of it.
constexpr std::uint64_t kFirstJoinBatches = 8;

constexpr std::uint64_t kPermille = 1000;

// Parcels: so many mean steps of a node, so that most steps need one parcel for each other node.
constexpr std::uint64_t kStepsOfParcels = 2;

std::uint64_t CeilDivide(Uint128 value, Uint128 by) {
  return static_cast<std::uint64_t>((value + by - 1) / by);
}

// Samples of a global batch.
std::uint64_t BatchSamples(const OrderOptions& job) {
  return std::min(job.batch_size * job.world_size, job.sample_count);
}

// Units of `samples` samples of mean size.
std::uint64_t UnitsOf(std::uint64_t samples, const BlockMap& blocks) {
  return CeilDivide(Uint128{samples} * blocks.total_units(), blocks.sample_count());
}

// Mean number of other samples in a sample's block, rounded up.
std::uint64_t MeanMates(const BlockMap& blocks) {
  Uint128 pairs = 0;
  for (std::uint64_t i = 0; i < blocks.block_count(); ++i) {
    const std::uint64_t count = blocks.block(i).count;
    pairs += Uint128{count} * (count - 1);
  }
  return CeilDivide(pairs, blocks.sample_count());
}

// Useful units of all pools together, without a memory limit.
//
// Let M be the joined samples, n all samples, m those of a batch. Two mates (samples of one block)
// are in the same batch with an excess over chance of at most 1/(2M) - 1/(2n)
// (plan/quality/labels.h). So the inflation is at most 1 + (m - 1) * mates * (1/(2M) - 1/(2n)).
// Solved for M.
std::uint64_t UsefulUnits(const OrderOptions& job, const BlockMap& blocks,
                          std::uint32_t join_permille) {
  const std::uint64_t total = blocks.total_units();
  const std::uint64_t n = blocks.sample_count();
  const Uint128 worst = std::min(Uint128{BatchSamples(job) - 1} * MeanMates(blocks),
                                 Uint128{n} << 16);  // A larger pool does not help.
  const std::uint64_t joined =
      CeilDivide(worst * kInflationInverse * n, Uint128{n} * 2 + worst * kInflationInverse);
  // In a pool of kBlocksOfAPool blocks half of one block is free on average.
  const std::uint64_t resident =
      CeilDivide(Uint128{joined} * kPermille * 2 * kBlocksOfAPool,
                 Uint128{kPermille - join_permille} * (2 * kBlocksOfAPool - 1));
  // Room for all samples to join at once, and for one block that joins.
  const std::uint64_t whole =
      std::min(CeilDivide(Uint128{total} * kPermille, kPermille - join_permille), 2 * total) +
      blocks.largest_block();
  const std::uint64_t most =
      std::max(CeilDivide(total, kShareMost),
               std::min(whole, kBytesOfSmallData / std::uint64_t{blocks.unit_bytes()}));
  const std::uint64_t least = CeilDivide(total, kShareLeast);
  return std::max(std::clamp(UnitsOf(resident, blocks), least, most),
                  LeastEpochPool(job, blocks, 1));
}

// Chooses the number of pools.
class PoolsChoice {
 public:
  // `units`: of all pools together, given or useful.
  PoolsChoice(const OrderOptions& job, const BlockMap& blocks, std::uint64_t units,
              const EpochGiven& given)
      : job_(job),
        blocks_(blocks),
        units_(units),
        fixed_(given.pool_units.has_value()),
        rank_units_(given.rank_units),
        homes_(given.homes.get()),
        home_count_(given.homes == nullptr ? 1 : given.homes->count()) {}

  [[nodiscard]] std::uint64_t Choose() const {
    if (home_count_ > 1) return ChooseForHomes();
    if (kPools.front() % job_.world_size == 0) {
      const auto found = std::ranges::find_if(
          kPools, [&](std::uint64_t pools) { return Holds(pools, units_, kBlocksOfAPool); });
      const std::uint64_t pools = found == kPools.end() ? 1 : *found;
      if (Room(pools) == units_) return pools;
    }
    return ChooseForWorld();
  }

  // The units that the ranks have memory for, with `pools` pools. A rank draws from the pools
  // congruent to it modulo the greatest common divisor of pools and ranks.
  [[nodiscard]] std::uint64_t Room(std::uint64_t pools) const {
    if (!rank_units_.has_value()) return units_;
    const Uint128 room =
        home_count_ > 1 ? RoomAtHomes()
                        : Uint128{std::gcd(std::uint64_t{job_.world_size}, pools)} * *rank_units_;
    if (room >= units_) return units_;
    return fixed_ ? 0 : static_cast<std::uint64_t>(room);
  }

 private:
  // Whether `units` can be divided into `pools` legal pools that hold `mean_blocks` mean blocks
  // each.
  [[nodiscard]] bool Holds(std::uint64_t pools, std::uint64_t units,
                           std::uint64_t mean_blocks) const {
    return pools <= blocks_.block_count() &&
           units / pools >= LeastEpochPool(job_, blocks_, pools, homes_) &&
           Uint128{units} * blocks_.block_count() >=
               Uint128{mean_blocks} * pools * blocks_.total_units();
  }

  // Nodes that exchange samples hold the pools of their own homes, and parcels; others hold all.
  [[nodiscard]] Uint128 RoomAtHomes() const {
    if (!job_.exchange) return *rank_units_;
    const Uint128 all = Uint128{job_.world_size} * *rank_units_;
    const Uint128 parcels = Uint128{2} * home_count_ * EpochParcelUnits(job_, blocks_, home_count_);
    return all > parcels ? all - parcels : 0;
  }

  // Equally many for each home, at least one, and at most as many as any home has blocks.
  [[nodiscard]] std::uint64_t ChooseForHomes() const {
    const std::uint64_t most = homes_->blocks(homes_->least_home()).size();
    for (const std::uint64_t mean_blocks :
         {kBlocksOfAPool, kBlocksOfATightPool, std::uint64_t{0}}) {
      for (const std::uint64_t wanted : kPools) {
        const std::uint64_t of_a_home = std::clamp(wanted / home_count_, std::uint64_t{1}, most);
        const std::uint64_t pools = of_a_home * home_count_;
        if (Holds(pools, Room(pools), mean_blocks)) return pools;
      }
    }
    return home_count_;
  }

  // With a multiple of the world size a pool feeds one rank; with a divisor, as few as possible.
  [[nodiscard]] std::uint64_t ChooseForWorld() const {
    const std::uint64_t world = job_.world_size;
    for (std::uint64_t pools = CeilDivide(kPools.front(), world) * world; pools > 0;
         pools -= world) {
      if (Holds(pools, Room(pools), kBlocksOfAPool)) return pools;
    }
    for (const std::uint64_t mean_blocks : {kBlocksOfATightPool, std::uint64_t{0}}) {
      for (std::uint64_t pools = world; pools > 0; --pools) {
        if (world % pools == 0 && Holds(pools, Room(pools), mean_blocks)) return pools;
      }
    }
    // Too little memory: choose the pools that need least.
    for (std::uint64_t pools = world; pools > 1; --pools) {
      if (world % pools == 0 && pools <= blocks_.block_count() &&
          (!fixed_ || Holds(pools, units_, 0))) {
        return pools;
      }
    }
    return 1;
  }

  const OrderOptions& job_;
  const BlockMap& blocks_;
  const std::uint64_t units_;
  const bool fixed_;
  const std::optional<std::uint64_t> rank_units_;
  const EpochHomes* const homes_;  // null: one home
  const std::uint32_t home_count_;
};

// The start of a run.
struct FirstFill {
  std::uint32_t fill_permille = kPermille;
  std::uint32_t join_permille = 0;
};

FirstFill UsefulFirstFill(const OrderOptions& job, const BlockMap& blocks,
                          const EpochParameters& parameters) {
  const std::uint64_t budget = parameters.pool_units / parameters.pools;
  const std::uint64_t full =
      budget - static_cast<std::uint64_t>(Uint128{budget} * parameters.join_permille / kPermille);
  const std::uint64_t batch = CeilDivide(BatchSamples(job), parameters.pools);
  const std::uint64_t wanted =
      std::max({CeilDivide(kFirstFillBytes, Uint128{parameters.pools} * blocks.unit_bytes()),
                blocks.largest_block(), UnitsOf(batch, blocks)});
  if (wanted >= full) return {};
  const std::uint64_t fill = CeilDivide(Uint128{wanted} * kPermille, full);
  const std::uint64_t batches =
      CeilDivide(Uint128{UnitsOf(kFirstJoinBatches * batch, blocks)} * kPermille, budget);
  // At least as much joins as is drawn.
  const std::uint64_t at_once = static_cast<std::uint64_t>(Uint128{full} * fill / kPermille);
  const auto most = static_cast<std::uint64_t>(Uint128{budget - at_once} * kPermille / budget);
  const std::uint64_t join =
      std::max<std::uint64_t>(1, std::min(std::max(kFirstJoinPermille, batches), most));
  return {.fill_permille = static_cast<std::uint32_t>(fill),
          .join_permille = static_cast<std::uint32_t>(join)};
}

}  // namespace

std::uint64_t LeastEpochPool(const OrderOptions& job, const BlockMap& blocks, std::uint64_t pools,
                             const EpochHomes* homes) {
  std::uint64_t samples = BatchSamples(job);
  if (homes != nullptr) {
    samples = CeilDivide(Uint128{samples} * homes->most_samples(), blocks.sample_count());
    pools = std::max<std::uint64_t>(1, pools / homes->count());
  }
  const std::uint64_t share = CeilDivide(samples, pools);
  return std::max(2 * blocks.largest_block(), UnitsOf(share, blocks));
}

std::uint64_t EpochParcelUnits(const OrderOptions& job, const BlockMap& blocks,
                               std::uint32_t homes) {
  const std::uint64_t samples = CeilDivide(BatchSamples(job), homes);
  return std::max(blocks.largest_sample(), kStepsOfParcels * UnitsOf(samples, blocks));
}

EpochParameters FillEpochParameters(const OrderOptions& job, const BlockMap& blocks,
                                    const EpochGiven& given) {
  const std::uint64_t units = given.pool_units.has_value()
                                  ? *given.pool_units
                                  : UsefulUnits(job, blocks, given.join_permille);
  const PoolsChoice choice(job, blocks, units, given);
  EpochParameters parameters{.pool_units = units, .join_permille = given.join_permille};
  parameters.pools = given.pools.has_value() ? *given.pools : choice.Choose();
  if (!given.pool_units.has_value()) {
    parameters.pool_units = std::max(
        choice.Room(parameters.pools),
        parameters.pools * LeastEpochPool(job, blocks, parameters.pools, given.homes.get()));
  }
  FirstFill first;
  if (given.first_fill_permille.has_value()) {
    first.fill_permille = *given.first_fill_permille;  // Given alone: one sample joins a draw.
  } else {
    first = UsefulFirstFill(job, blocks, parameters);
  }
  parameters.first_fill_permille = first.fill_permille;
  parameters.first_join_permille = given.first_join_permille.value_or(first.join_permille);
  return parameters;
}

}  // namespace headrace
