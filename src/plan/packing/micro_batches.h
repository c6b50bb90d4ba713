#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"
#include "headrace/status.h"

namespace headrace {

// Micro-batches of limited tokens whose costs are level, for a window of global batches.
//
// A global batch has `ranks` x `rank_micro_batches` of them. All ranks run their micro-batches side
// by side, and wait for each other: what counts is the sum over micro-batches of the largest cost
// of a rank.
struct LevelOptions {
  std::uint32_t tokens_max = 0;      // of a micro-batch
  std::uint32_t global_batches = 1;  // of the window
  // Of the run that first planned the window: they decide which samples a global batch has. On
  // other numbers of ranks the micro-batches of a global batch are dealt anew: DealMicroBatches().
  std::uint32_t ranks = 1;
  std::uint32_t rank_micro_batches = 1;
};

struct MicroBatch {
  std::vector<std::uint32_t> samples;  // ascending positions among those that were given
  std::uint64_t tokens = 0;
  std::uint64_t cost = 0;

  friend bool operator==(const MicroBatch&, const MicroBatch&) = default;
};

struct LeveledWindow {
  // Each has ranks * rank_micro_batches of them, by cost, the largest first; some may be empty.
  std::vector<std::vector<MicroBatch>> global_batches;
  // Samples that the window takes, from the first on: the next window begins after them.
  std::uint64_t taken = 0;
};

// Takes samples from the first on, as many as the window has room for, and levels their costs over
// micro-batches: the costliest sample first, each to the micro-batch of least cost that has room
// (Graham, "Bounds on multiprocessing timing anomalies", 1969). Micro-batches sorted by cost, those
// of equal rank of cost run side by side; which global batch gets which of these is drawn. A pure
// function; every sample comes once, and whole.
//
// `tokens` and `costs`: of each sample; a cost is below 2^40, in any unit.
//
// Takes O(n log n) for each of about 2 + log2(n / 50) trials, if samples are small beside
// micro-batches.
// Errors: InvalidArgument  a sample has more tokens than tokens_max; an option is 0; lengths of
//                          `tokens` and `costs` differ; a cost is too large
Result<LeveledWindow> LevelWindow(std::span<const std::uint32_t> tokens,
                                  std::span<const std::uint64_t> costs, const LevelOptions& options,
                                  Prng order);

// Which of a global batch's micro-batches each rank runs: result[m][r], positions in
// `micro_batches`; those of equal m run side by side. `ranks` divides their number.
std::vector<std::vector<std::uint32_t>> DealMicroBatches(std::span<const MicroBatch> micro_batches,
                                                         std::uint32_t ranks, Prng order);

}  // namespace headrace
