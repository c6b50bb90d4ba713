#pragma once

#include <cstdint>

namespace headrace {

// What was done for the block reads of a plan: see EngineStats.
struct BlockCounts {
  std::uint64_t block_reads = 0;  // begun, those of samples that were resident before a restart too
  std::uint64_t block_bytes = 0;  // asked of the store for them ...
  std::uint64_t reread_bytes = 0;  // ... apart: for what was resident before a restart
  std::uint64_t kept_bytes = 0;    // of samples that became resident
  std::uint64_t pinned_reads = 0;  // block reads that found samples in kept blocks
  std::uint64_t pinned_bytes = 0;  // of these samples
};

}  // namespace headrace
