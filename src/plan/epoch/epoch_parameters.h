#pragma once

// Defaults of the `epoch` order's parameters. docs/orders.md specifies them.

#include <cstdint>
#include <memory>
#include <optional>

#include "headrace/order_options.h"
#include "plan/block_map.h"
#include "plan/epoch/epoch_homes.h"

namespace headrace {

inline constexpr std::uint32_t kEpochJoinPermille = 250;  // the default

// Pools of bounded memory; the sizes are those of the whole job.
struct EpochParameters {
  std::uint64_t pool_units = 0;
  std::uint64_t pools = 1;
  std::uint32_t join_permille = kEpochJoinPermille;
  std::uint32_t first_fill_permille = 1000;
  std::uint32_t first_join_permille = 0;
};

// The parameters that the user gave, and the limits of the others.
struct EpochGiven {
  std::optional<std::uint64_t> pool_units;
  std::optional<std::uint64_t> pools;  // at least 1
  std::optional<std::uint32_t> first_fill_permille;
  std::optional<std::uint32_t> first_join_permille;
  std::uint32_t join_permille = kEpochJoinPermille;  // at most 900
  std::shared_ptr<const EpochHomes> homes;           // null: one home
  // Units that every rank has memory for, if it has a process of its own. std::nullopt: no limit.
  std::optional<std::uint64_t> rank_units;
};

// The smallest legal size of one of `pools` pools, in units. A pool must hold two blocks, to draw
// from one while it reads the other, and its share of a global batch, which is largest at the home
// with the most samples. `homes`, null: one home.
std::uint64_t LeastEpochPool(const OrderOptions& job, const BlockMap& blocks, std::uint64_t pools,
                             const EpochHomes* homes = nullptr);

// Units of samples that a node of `homes` holds for others at most, and of those that it is sent at
// once: those of two mean steps, or of the dataset's largest sample if that is more.
std::uint64_t EpochParcelUnits(const OrderOptions& job, const BlockMap& blocks,
                               std::uint32_t homes);

// Fills in the missing parameters. A pure function of the blocks, the global batch, the world size
// and `given`. How ranks share processes (job.rank, job.ranks) has no effect; neither has the world
// size if it divides 48 and the ranks have memory for the useful pool. Uses integers only, so that
// every machine gets the same result.
//
// A default pool is legal (two blocks, a batch) even if rank_units is less: the caller must
// compare. Does not check given parameters. `job` and `blocks` must be of one dataset.
EpochParameters FillEpochParameters(const OrderOptions& job, const BlockMap& blocks,
                                    const EpochGiven& given);

}  // namespace headrace
