#pragma once

#include <cstdint>
#include <memory>

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
  std::uint32_t nodes = 1;         // homes of virtual chunks; rank r is on node r mod nodes
  std::uint32_t prefetch = 0;      // requests in the window of a remote read; 0: none
  std::uint64_t remote_units = 0;  // of remote slots a node may hold; 0: no limit
};

// The `redox` order: the papers' slot protocol (Redox, algorithms 1 to 6; Brand, section 3), run
// offline in the total order (step, rank).
Result<std::unique_ptr<Order>> MakeRedoxOrder(const RedoxOrderOptions& options, Position start);

}  // namespace headrace
