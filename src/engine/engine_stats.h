#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cell_pool.h"
#include "base/members.h"
#include "base/memory/buffer_pool.h"
#include "engine/batch/batch_times.h"
#include "engine/blocks/block_counts.h"
#include "engine/lanes/lane_stats.h"
#include "engine/memory/scratch_budget.h"
#include "engine/tiers/tier_counts.h"

namespace headrace {

// What an engine did so far, for all lanes; what can be told apart is in `lanes`. Sizes in bytes;
// all but the gauges monotonic.
struct EngineStats {
  std::uint64_t reads = 0;                  // issued to the store
  std::uint64_t read_bytes = 0;             // as asked for: gaps between coalesced extents too
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  BlockCounts blocks;
  std::uint64_t reads_in_flight = 0;  // gauge
  std::uint64_t steps_in_work = 0;    // gauge
  BufferPool::Stats staging;          // bytes read and not decoded yet
  BufferPool::Stats batch;            // batches in work, ready and held, over all lanes
  CellPool::Stats resident;           // samples of block reads, from the read to their delivery
  BufferPool::Stats pinned;           // blocks that stay in memory
  ScratchBudget::Stats scratch;       // of decodes, beside their input and rows
  TierCounts tiers;
  std::vector<LaneStats> lanes;
};
HEADRACE_MEMBERS(EngineStats, reads, read_bytes, substituted, substitutions, blocks,
                 reads_in_flight, steps_in_work, staging, batch, resident, pinned, scratch, tiers,
                 lanes)

}  // namespace headrace
