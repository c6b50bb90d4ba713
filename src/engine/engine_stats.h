#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cell_pool.h"
#include "base/members.h"
#include "base/memory/buffer_pool.h"
#include "engine/batch/batch_times.h"
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
  // Block reads of the plan. What they asked of the store is in reads and read_bytes, too; what
  // they found in kept blocks is in none of those.
  std::uint64_t block_reads = 0;  // begun, those of samples that were resident before a restart too
  std::uint64_t block_bytes = 0;  // asked of the store for them ...
  std::uint64_t reread_bytes = 0;     // ... apart: for what was resident before a restart
  std::uint64_t kept_bytes = 0;       // of samples that became resident
  std::uint64_t pinned_reads = 0;     // block reads that found samples in kept blocks
  std::uint64_t pinned_bytes = 0;     // of these samples
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
HEADRACE_MEMBERS(EngineStats, reads, read_bytes, substituted, substitutions, block_reads,
                 block_bytes, reread_bytes, kept_bytes, pinned_reads, pinned_bytes, reads_in_flight,
                 steps_in_work, staging, batch, resident, pinned, scratch, tiers, lanes)

}  // namespace headrace
