#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cell_pool.h"
#include "base/memory/buffer_pool.h"
#include "engine/batch/batch_times.h"
#include "engine/memory/scratch_budget.h"

namespace headrace {

// What came out of one tier.
struct TierUses {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of these
  std::uint64_t ahead = 0;  // of the samples: there because they were fetched ahead, and not used
                            // before: ready on time. All others are reuse.
};

// How samples got around storage, and did not.
struct TierCounts {
  std::vector<TierUses> uses;       // by tier, fastest first
  std::uint64_t storage_uses = 0;   // samples that no tier had
  std::uint64_t waits = 0;          // samples waited for on their way into a tier
  std::uint64_t fetched_ahead = 0;  // samples read for a tier alone
  std::uint64_t moved = 0;          // from tier to tier
  std::uint64_t not_kept = 0;       // a tier would have them, and they did not get there
  std::uint64_t fallbacks = 0;      // a tier had them, and could not give them: read from storage
  std::vector<std::uint64_t> planned;  // uses of blocks as planned, by tier and, last, elsewhere
};

// What one lane did so far. Times in nanoseconds.
struct LaneStats {
  std::uint64_t batches = 0;       // handed over
  std::uint64_t samples = 0;       // in those
  std::uint64_t sample_bytes = 0;  // stored, of the samples decoded
  // Moved in memory as they are, from where they were read or kept, into rows or together for a
  // decoder. What a decoder makes, or is read into its row, is no copy.
  std::uint64_t copied_bytes = 0;
  std::int64_t decode_ns = 0;  // in decode tasks, summed over threads
  std::int64_t busy_ns = 0;    // sum of BatchTimes::busy_ns
  StallTimes stall_ns{};
  std::int64_t held_up_ns = 0;      // that other lanes waited for this one's consumer
  std::uint64_t ready = 0;          // gauge: handed over, not taken
  std::uint64_t steps_in_work = 0;  // gauge
  std::uint64_t queued_reads = 0;   // gauge: not issued
  bool gone = false;                // its consumer left
  BufferPool::Stats batch;          // batches in work, ready and held by it
};

// What an engine did so far, for all lanes; what can be told apart is in `lanes`. Sizes in bytes;
// all but the gauges monotonic.
struct EngineStats {
  std::uint64_t reads = 0;                  // issued to the store
  std::uint64_t read_bytes = 0;             // as asked for: gaps between coalesced extents too
  std::uint64_t substituted = 0;            // samples replaced
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  // Block reads of the plan. What they asked of the store is in reads and read_bytes, too; what
  // they found pinned is in none of those.
  std::uint64_t block_reads = 0;  // begun, those of samples that were resident before a restart too
  std::uint64_t block_bytes = 0;  // asked of the store for them ...
  std::uint64_t reread_bytes = 0;     // ... apart: for what was resident before a restart
  std::uint64_t kept_bytes = 0;       // of samples that became resident
  std::uint64_t pinned_reads = 0;     // block reads that found samples in pinned memory
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
inline constexpr std::size_t kSubstitutionsListed = 10000;

}  // namespace headrace
