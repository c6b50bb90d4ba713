#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/order_options.h"

namespace headrace {

// What fixes the `redox` order beside the job: as in its parameters of the same names. A block of
// `blocks` is a physical chunk.
struct RedoxOrderOptions {
  enum class Mapping : std::uint8_t { kConsecutive = 0, kInterleaved = 1 };
  enum class Refill : std::uint8_t { kMaxFill = 0, kRandom = 1 };
  enum class Ties : std::uint8_t { kRandom = 0, kFirst = 1 };

  OrderOptions job;
  std::shared_ptr<const BlockMap> blocks;
  std::uint32_t chunks_per_virtual = 10;
  Mapping mapping = Mapping::kConsecutive;
  Refill refill = Refill::kMaxFill;
  Ties ties = Ties::kRandom;
  std::uint32_t slot_classes = 0;  // G: positions in a chunk fall into this many; 0: one a position
  std::uint32_t nodes = 1;         // virtual chunk v is at home on v mod nodes; at global position
                                   // g, node g mod nodes asks
  std::uint32_t prefetch = 0;      // requests in the window of a remote read; 0: none
  std::uint64_t remote_units = 0;  // of remote slots a node may hold; 0: no limit
  std::uint64_t memory_units = 0;  // resident in all slots of all nodes; 0: what the slots hold

  // What is asked for in each epoch, by all ranks, in total order (step, rank): a sampler's
  // samples. Nothing that it does not name is delivered. Null: the epoch's permutation of all
  // samples.
  std::shared_ptr<const std::vector<SampleId>> trace;
};

// The `redox` order: the papers' slot protocol (Redox, algorithms 1 to 6; Brand, section 3), run
// offline in the total order (step, rank). docs/orders.md says where the papers leave it open.
//
// Every stream holds the reads of all ranks: what those of others are given becomes releases. Of a
// trace, the second and later requests for a sample are served by reads of their own, so that what
// is delivered is the trace, in another order. Padded from the final batch. With drop_last, what
// was resident at the end of an epoch is released: the samples dropped need not be those that were
// not asked for.
//
// An epoch is a function of (options, epoch): entering a position runs its own epoch up to there.
// What was resident then is read again with the first step. Memory: about 9 bytes a sample, 4 more
// if samples differ in size, and RedoxWindow's with prefetch on several nodes.
//
// Errors: InvalidArgument  2^32 samples or more; a trace that is empty or names a sample that is
//                          not there; memory_units below the largest sample; no nodes or no chunks
//                          in a virtual one; those of StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeRedoxOrder(const RedoxOrderOptions& options, Position start);

// Units that its stream has resident at most.
//
// Errors: those of MakeRedoxOrder
Result<std::uint64_t> RedoxResidentUnits(const RedoxOrderOptions& options);

}  // namespace headrace
