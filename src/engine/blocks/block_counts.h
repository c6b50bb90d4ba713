#pragma once

#include <cstdint>

#include "base/members.h"

namespace headrace {

// What was done for the block reads of a plan. What they asked of the store is in
// EngineStats::reads and read_bytes, too; what pinned blocks had is in none of those.
struct BlockCounts {
  std::uint64_t reads = 0;  // begun, those of samples that were resident before a restart too
  std::uint64_t bytes = 0;  // asked of the store for them ...
  std::uint64_t reread_bytes = 0;     // of those for what was resident before a restart
  std::uint64_t left_in_storage = 0;  // reads that were not made: the page cache held the samples
  std::uint64_t kept_bytes = 0;       // of samples that became resident
  std::uint64_t pinned_reads = 0;     // block reads that found samples in pinned blocks
  std::uint64_t pinned_bytes = 0;     // of these samples
  std::uint64_t parcels = 0;          // of other nodes, begun
  std::uint64_t parcel_samples = 0;   // of these, that came
  std::uint64_t parcel_bytes = 0;     // of these samples
  std::uint64_t sent_parcels = 0;     // to other nodes, whole
  std::uint64_t sent_samples = 0;
  std::uint64_t sent_bytes = 0;
};
HEADRACE_MEMBERS(BlockCounts, reads, bytes, reread_bytes, left_in_storage, kept_bytes, pinned_reads,
                 pinned_bytes, parcels, parcel_samples, parcel_bytes, sent_parcels, sent_samples,
                 sent_bytes)

}  // namespace headrace
