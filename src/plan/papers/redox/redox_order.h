#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/order_options.h"

namespace headrace {

// Parameters of the `redox` order, besides the job: those of the same names in docs/orders.md. A
// block of `blocks` is a physical chunk.
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
  std::uint32_t slot_classes = 0;  // G: classes of a chunk's positions; 0: one a position
  std::uint32_t nodes = 1;         // the home of virtual chunk v is node v mod nodes; at global
                                   // position g, node g mod nodes asks
  std::uint32_t prefetch = 0;      // requests in the window of a remote read; 0: none
  std::uint64_t remote_units = 0;  // units of remote slots that a node may hold; 0: no limit
  std::uint64_t memory_units = 0;  // resident in all slots of all nodes; 0: the size of the slots

  // The requests of each epoch, of all ranks, in total order (step, rank): a sampler's samples.
  // Only these are delivered. Null: the epoch's permutation of all samples.
  std::shared_ptr<const std::vector<SampleId>> trace;
};

// The `redox` order: the papers' slot protocol (Redox, algorithms 1 to 6; Brand, section 3), run
// offline in the total order (step, rank). docs/orders.md lists the choices that the papers leave
// open.
//
// Every stream holds the reads of all ranks: samples for other ranks become releases. In a trace,
// each repeated request for a sample has its own read, so that the deliveries are the trace in
// another order. Padding repeats samples of the final batch. With drop_last, the samples that are
// resident at the end of an epoch are released: the dropped samples need not be those that were not
// requested.
//
// An epoch is a function of (options, epoch): entering a position runs its own epoch up to that
// position, virtual chunk by virtual chunk where these are independent (no window and no memory
// limit). The first step reads the samples again that were resident at that position.
// Memory: about 9 bytes a sample, 4 more if samples differ in size, and RedoxWindow's with prefetch
// on several nodes; while entering, up to 16 MiB more.
//
// Errors: InvalidArgument  2^32 samples or more, also of a trace; a trace that is empty or names a
//                          sample that does not exist; memory_units below the largest sample; no
//                          nodes or no chunks in a virtual one; those of StepsPerEpoch and
//                          CheckStart
Result<std::unique_ptr<Order>> MakeRedoxOrder(const RedoxOrderOptions& options, Position start);

// The most units that the order's stream keeps resident at once.
//
// Errors: those of MakeRedoxOrder
Result<std::uint64_t> RedoxResidentUnits(const RedoxOrderOptions& options);

}  // namespace headrace
