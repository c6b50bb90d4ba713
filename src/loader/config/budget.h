#pragma once

#include <cstdint>

#include "base/status.h"
#include "observe/memory_budget.h"

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

  std::uint64_t stand_in_bytes = 0;  // the rows of a sample that replaces a smaller one; 0: none

  std::uint64_t tier_bytes = 0;  // tiers in memory, as asked for

  std::uint64_t scratch_bytes_least = 0;  // for decodes, beside their rows; 0: nothing decodes
  std::uint64_t scratch_bytes_max = 0;    // no decode can use more
  bool results = false;                   // whether Python workers turn batches into others

  // What an order that reads blocks keeps of them; 0 for others.
  std::uint64_t resident_bytes = 0;
  std::uint64_t pinned_bytes = 0;  // what is left may keep this much of the blocks for good
};

// Decodes have 1 / kScratchShare of memory=, or 1 / kScratchShareOfResidents if the order keeps
// residents. The number of threads has no effect, so that the order's pool does not depend on it.
inline constexpr std::uint64_t kScratchShare = 4;
inline constexpr std::uint64_t kScratchShareOfResidents = 8;

// The results of Python workers have 1 / kResultsShare of it, or 1 / kResultsShareOfResidents.
inline constexpr std::uint64_t kResultsShare = 2;
inline constexpr std::uint64_t kResultsShareOfResidents = 4;

// Batches the consumer may hold without slowing anything: the one it works on, and the one before
// it.
inline constexpr std::uint32_t kBatchesHeld = 2;

// Bytes that one rank, alone in its process, has for the residents of its order: its memory less
// the tiers and the shares of decodes, results, reads and batches. Without memory_bytes all ranks
// of the job together have three quarters of the default of one machine, even if they run on
// several. `rank`: the needs of one rank; its resident_bytes and pinned_bytes have no effect. Pure.
std::uint64_t ResidentRoom(const BudgetNeeds& rank, std::uint32_t world_size);

// Divides the memory. Tiers and residents get what they need. Reads get what keeps the device busy
// while as much again is decoded, and batches the rest; both get at least their minimum. If there
// are residents, reads and batches get no more than they can use, and pinned blocks the rest.
// Batches also get room for one stand-in each, as far as memory is left for it.
// Decodes and results get their shares before reads and batches. But of the memory beyond all
// minimums, reads and batches keep a third, or what they can use if that is less. Pure.
//
// Errors: InvalidArgument  memory_bytes below two batches, one read, the least of decodes, one
//                          batch of results, tiers and residents, with the least that would do;
//                          tiers and residents beyond the machine's memory
Result<Budget> MakeBudget(const BudgetNeeds& needs);

// Bytes of memory= that yield one more byte for decodes. For messages.
double MemoryPerScratch(const BudgetNeeds& needs, const Budget& budget);

}  // namespace headrace
