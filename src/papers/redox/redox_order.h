#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/order_options.h"
#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order.h"
#include "plan/order_factory.h"

namespace headrace {

// Parameters of the `redox` order, besides the job: those of the same names in docs/orders.md. A
// block of `blocks` is a physical chunk.
struct RedoxOrderOptions {
  enum class Mapping : std::uint8_t { kConsecutive = 0, kInterleaved = 1 };
  enum class Refill : std::uint8_t { kMaxFill = 0, kRandom = 1 };
  enum class Ties : std::uint8_t { kRandom = 0, kFirst = 1 };
  enum class Reading : std::uint8_t { kKept = 0, kChunk = 1 };
  enum class Framing : std::uint8_t { kOne = 0, kSplit = 1 };

  OrderOptions job;
  std::shared_ptr<const BlockMap> blocks;
  std::uint32_t chunks_per_virtual = 10;
  Mapping mapping = Mapping::kConsecutive;
  Refill refill = Refill::kMaxFill;
  Ties ties = Ties::kRandom;
  Reading read = Reading::kKept;    // of a chunk: what it keeps, or all of it
  Framing framing = Framing::kOne;  // an answer and what is sent along: one parcel, or two
  bool remap = false;               // chunks are dealt to virtual chunks anew each epoch
  bool arrival = false;             // nodes' requests of a step come in any order, drawn at random
  std::uint32_t slot_classes = 0;   // G: classes of a chunk's positions; 0: one a position
  std::uint32_t nodes = 1;          // the home of virtual chunk v is node v mod nodes; at global
                                    // position g, node g mod nodes asks; job.nodes() of a job that
                                    // exchanges samples
  SampleTable homes;                // the node of each sample, one a block; null: as above
  std::uint32_t prefetch = 0;       // requests in the window of a remote read; 0: none
  std::uint64_t remote_units = 0;   // units of remote slots that a node may hold; 0: no limit
  std::uint64_t memory_units = 0;   // resident in all slots of all nodes; 0: the size of the slots

  // The requests of each epoch, of all ranks, in total order (step, rank): a sampler's samples.
  // Only these are delivered. Null: the epoch's permutation of all samples.
  std::shared_ptr<const std::vector<SampleId>> trace;
};

// The `redox` order: the papers' slot protocol (Redox, algorithms 1 to 6; Brand, section 3), run
// offline in the total order (step, rank). docs/orders.md lists the choices that the papers leave
// open.
//
// Every stream holds the reads of all ranks: samples for other ranks become releases. With
// job.exchange a node's stream has the reads of its own chunks, the parcels that it sends other
// nodes, and those that it expects: one for each request that takes a message, with the samples
// that are sent along or, with Framing::kSplit, followed by a second one with these. They stay at
// the requester until they are requested. In a trace, each repeated request for a sample has its
// own read, so that the deliveries are the trace in another order. Padding repeats samples of the
// final batch. With drop_last, the samples that are resident at the end of an epoch are released:
// the dropped samples need not be those that were not requested.
//
// An epoch is a function of (options, epoch): entering a position runs its own epoch up to that
// position, virtual chunk by virtual chunk where these are independent (no window and no memory
// limit). The first step reads the samples again that were resident at that position.
// Memory: about 9 bytes a sample, 4 more if samples differ in size, and RedoxWindow's with prefetch
// on several nodes, and 4 with job.exchange; while entering, up to 16 MiB more.
//
// Errors: InvalidArgument  2^32 samples or more, also of a trace; a trace that is empty or names a
//                          sample that does not exist; memory_units below the largest sample; no
//                          nodes or no chunks in a virtual one; with job.exchange a trace, other
//                          nodes than the job's, or ranks that are not a node's; those of
//                          StepsPerEpoch and CheckStart
Result<std::unique_ptr<Order>> MakeRedoxOrder(const RedoxOrderOptions& options, Position start);

// The most units that the order's stream keeps resident at once. With job.exchange: those of the
// node's own slots, of what may be sent along to it, and of one answer.
//
// Errors: those of MakeRedoxOrder
Result<std::uint64_t> RedoxResidentUnits(const RedoxOrderOptions& options);

// The row of Orders().
const OrderFactory& RedoxOrderFactory();

}  // namespace headrace
