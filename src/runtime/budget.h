#pragma once

#include <cstdint>

#include "base/status.h"

namespace headrace {

// What a loader's memory is divided for. Bytes, as buffers are charged (BufferPool::ChargedBytes).
struct BudgetNeeds {
  std::uint64_t memory_bytes = 0;        // what the user allows; 0: as much as is useful
  std::uint64_t memory_limit_bytes = 0;  // of the machine; a default stays below a quarter of it
  std::uint64_t batch_bytes = 0;         // one batch
  std::uint64_t batch_size = 1;          // samples
  std::uint64_t read_bytes = 0;          // one read of average size
  std::uint64_t read_bytes_max = 0;      // the largest read known of
  std::uint32_t batches_ahead = 0;       // what the user asks for; 0: as many as are useful
  std::uint32_t reads_in_flight = 64;

  std::uint64_t tier_bytes = 0;  // tiers in memory, as asked for

  // What an order that reads blocks keeps of them; 0 for others.
  std::uint64_t resident_bytes = 0;  // as much as is useful, or, if fixed, as it must have
  bool resident_fixed = false;
  std::uint64_t pinned_bytes = 0;  // what is left may keep this much of the blocks for good
};

struct Budget {
  std::uint64_t staging_bytes = 0;
  std::uint64_t batch_bytes = 0;  // all of them
  std::uint32_t batches_max = 0;  // in work or ready
  std::uint64_t resident_bytes = 0;
  std::uint64_t pinned_bytes = 0;
};

// Batches the consumer may hold without slowing anything: the one it works on, and the one before
// it.
inline constexpr std::uint32_t kBatchesHeld = 2;

// Divides the memory: reads get what keeps the device busy while as much again is decoded, batches
// the rest, as long as both have their least. Tiers have what was asked for them. Where an order
// keeps residents, reads and batches get what is useful, a quarter at most unless that is below
// their least; residents what is useful of the rest, pinned blocks what is left. Pure.
//
// Errors: InvalidArgument  memory_bytes below two batches, one read, tiers and fixed residents,
//                          with the least that would do; tiers and fixed residents beyond the
//                          machine's memory
Result<Budget> MakeBudget(const BudgetNeeds& needs);

}  // namespace headrace
