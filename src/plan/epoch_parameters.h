#pragma once

// The parameters of the `epoch` order that a user leaves out. docs/orders.md specifies them.

#include <cstdint>
#include <optional>

#include "plan/block_map.h"
#include "plan/order_options.h"

namespace headrace {

inline constexpr std::uint32_t kEpochJoinPermille = 250;  // the default

// Pools of bounded memory, together those of the whole job.
struct EpochParameters {
  std::uint64_t pool_units = 0;
  std::uint64_t pools = 1;
  std::uint32_t join_permille = kEpochJoinPermille;
  std::uint32_t first_fill_permille = 1000;
  std::uint32_t first_join_permille = 0;
};

// The parameters that the user gave, and what limits the others.
struct EpochGiven {
  std::optional<std::uint64_t> pool_units;
  std::optional<std::uint64_t> pools;  // at least 1
  std::optional<std::uint32_t> first_fill_permille;
  std::optional<std::uint32_t> first_join_permille;
  std::uint32_t join_permille = kEpochJoinPermille;  // at most 900
  // Units that every rank has memory for, alone in its process. Nothing: no limit.
  std::optional<std::uint64_t> rank_units;
};

// The least units of one of `pools` pools. It must hold two blocks, so that it draws from one while
// the other is read, and its share of a global batch.
std::uint64_t LeastEpochPool(const OrderOptions& job, const BlockMap& blocks, std::uint64_t pools);

// Fills in the parameters that were left out. A pure function of the blocks, the global batch, the
// world size and `given`. How ranks share processes (job.rank, job.ranks) has no effect; the world
// size has none if it divides 48 and the ranks have memory for the useful pool. Computes with whole
// numbers only, so that every machine gets the same result.
//
// A default pool is legal (two blocks, a batch) even if rank_units is less: the caller must
// compare. Given parameters are not checked. `job` and `blocks` must be of one dataset.
EpochParameters FillEpochParameters(const OrderOptions& job, const BlockMap& blocks,
                                    const EpochGiven& given);

}  // namespace headrace
