#pragma once

#include <cstdint>
#include <optional>

#include "plan/block_map.h"

namespace headrace {

// What the default sizes of the `redox` order depend on.
struct RedoxRoom {
  std::uint64_t total_units = 0;            // of all samples
  std::uint64_t block_count = 1;            // physical chunks
  std::uint32_t nodes = 1;                  // that share the slots, by exchanging samples
  bool sends_along = false;                 // nodes hold samples of each other
  std::optional<std::uint64_t> room_units;  // of a node's memory; std::nullopt: no limit
};

struct RedoxSizes {
  std::uint32_t chunks_per_virtual = 10;
  std::uint64_t remote_units = 0;  // 0: no limit

  friend bool operator==(const RedoxSizes&, const RedoxSizes&) = default;
};

// The default sizes. The papers leave a tenth of a node's memory for samples that are sent
// along (Redox, 3.8), and as many slots as there is memory for: here no more than a tenth of the
// dataset, the ten chunks a virtual one that fit the papers' counts. Pure.
RedoxSizes ChooseRedoxSizes(const RedoxRoom& room);

// Loads of a chunk of `samples` in an epoch, with RedoxSizes::chunks_per_virtual and no window.
// `samples` is a power of two, at most kNeighboursMax. Pure.
double RedoxLoads(std::uint64_t samples);

// Samples a physical chunk, as the papers profile a machine for (Redox, 3.2 and 5.5): the power of
// two with the least loads over the rate of such reads. 1: redirection only loses on this machine.
// At most kNeighboursMax, which is the papers' own choice, and so few that each node has
// RedoxSizes::chunks_per_virtual chunks. Pure.
std::uint64_t ChooseRedoxChunk(const BlockFacts& facts);

}  // namespace headrace
