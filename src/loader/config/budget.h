#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/units.h"
#include "headrace/loader_stats.h"
#include "headrace/status.h"

namespace headrace {

// The needs that a loader's memory is divided among. Bytes, as buffers are charged
// (BufferPool::ChargedBytes).
struct BudgetNeeds {
  std::uint64_t memory_bytes = 0;  // set by the user; 0: as much as is useful
  // Of the machine; the default budget stays below a quarter of it.
  std::uint64_t memory_limit_bytes = 0;
  std::uint64_t batch_bytes = 0;     // one batch
  std::uint64_t batch_size = 1;      // samples
  std::uint64_t read_bytes = 0;      // one read of average size
  std::uint64_t read_bytes_max = 0;  // the largest known read
  // Batches in work or ready, set by the user; std::nullopt: the useful number.
  std::optional<std::uint32_t> prefetch;
  std::uint32_t reads_in_flight = 64;  // of single samples or of blocks, whichever the order reads

  std::uint64_t stand_in_bytes = 0;  // the rows of a sample that replaces a smaller one; 0: none

  std::uint64_t tier_bytes = 0;  // requested for tiers in memory

  // Least memory for decodes, besides their rows; 0: no decodes.
  std::uint64_t scratch_bytes_least = 0;
  std::uint64_t scratch_bytes_max = 0;  // no decode can use more
  bool results = false;                 // whether Python workers produce batches of results

  // Of objects that the store decodes as a whole (DecodedMemory); 0: it decodes none.
  std::uint64_t decoded_bytes_least = 0;
  std::uint64_t decoded_bytes_useful = 0;

  // Of requests, for which the store has memory of its own; 0: it has none.
  std::uint64_t request_bytes_least = 0;
  std::uint64_t request_bytes_useful = 0;

  // Bytes of blocks that the order keeps resident; 0 for orders that read no blocks.
  std::uint64_t resident_bytes = 0;
  // Spare memory may keep up to this much of the blocks permanently.
  std::uint64_t pinned_bytes = 0;
};

// Decodes get 1 / kScratchShare of memory=, or 1 / kScratchShareOfResidents if the order keeps
// residents. The share does not depend on the number of threads, so the order's pool does not
// either.
inline constexpr std::uint64_t kScratchShare = 4;
inline constexpr std::uint64_t kScratchShareOfResidents = 8;

// Results of Python workers get 1 / kResultsShare of it, or 1 / kResultsShareOfResidents.
inline constexpr std::uint64_t kResultsShare = 2;
inline constexpr std::uint64_t kResultsShareOfResidents = 4;

// Objects that the store decodes as a whole get 1 / kDecodedShare of it, or
// 1 / kDecodedShareOfResidents.
inline constexpr std::uint64_t kDecodedShare = 2;
inline constexpr std::uint64_t kDecodedShareOfResidents = 4;

// Requests of the store get 1 / kRequestShare of it, or 1 / kRequestShareOfResidents.
inline constexpr std::uint64_t kRequestShare = 4;
inline constexpr std::uint64_t kRequestShareOfResidents = 8;

// Batches that the consumer may hold without slowing the loader: the current one and the previous
// one.
inline constexpr std::uint32_t kBatchesHeld = 2;

// Memory for parcels of one direction, what other nodes send or what they get: a quarter of what is
// for reads, and no more than keeps a network busy.
constexpr std::uint64_t ParcelBytes(std::uint64_t staging_bytes) {
  return std::min(64 * kMiB, staging_bytes / 4);
}

// Returns the bytes that one rank, alone in its process, has for the residents of its order: its
// memory minus tiers and minus the shares of decodes, results, decoded objects, requests, reads and
// batches.
// If memory_bytes is 0, all ranks of the job together have three quarters of one machine's default,
// even if they run on several machines. `rank`: the needs of one rank; its resident_bytes and
// pinned_bytes are ignored. Pure.
std::uint64_t ResidentRoom(const BudgetNeeds& rank, std::uint32_t world_size);

// Divides the memory. Tiers and residents get what they need. Decodes, results, decoded objects and
// requests get their shares next, but a third of the memory beyond all minimums (or less, if less
// is useful) is left for reads and batches. Reads get enough to keep the device busy while the same
// amount is decoded; batches get the rest; both get at least their minimum. If there are residents,
// reads and batches get no more than they can use, and pinned blocks get the rest. Each batch also
// gets room for one stand-in, if memory is left. Pure.
//
// Errors: InvalidArgument  memory_bytes is below the sum of two batches, one read, the least for
//                          decodes, one batch of results, two decoded objects, requests, tiers and
//                          residents
//                          (the message gives the least that suffices); tiers, residents and
//                          decoded objects exceed the machine's memory
Result<Budget> MakeBudget(const BudgetNeeds& needs);

// Returns how many bytes of memory= give one more byte to decodes. For messages.
double MemoryPerScratch(const BudgetNeeds& needs, const Budget& budget);

}  // namespace headrace
