#pragma once

#include <cstdint>
#include <vector>

#include "base/members.h"
#include "base/memory/buffer_pool.h"
#include "engine/batch/batch_times.h"

namespace headrace {

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
HEADRACE_MEMBERS(LaneStats, batches, samples, sample_bytes, copied_bytes, decode_ns, busy_ns,
                 stall_ns, held_up_ns, ready, steps_in_work, queued_reads, gone, batch)

// What all lanes of an engine did.
struct LanesStats {
  std::uint64_t substituted = 0;            // samples replaced, in batches that were handed over
  std::vector<Substitution> substitutions;  // the first kSubstitutionsListed of them
  std::vector<LaneStats> lanes;
};

}  // namespace headrace
