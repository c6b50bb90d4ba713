#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "index/index.h"
#include "loader/config/loader_options.h"
#include "plan/placement/uses.h"

namespace headrace {

// How many steps lie between two uses of what a tier keeps as one: a block where the order reads
// blocks, else a sample. What a tier has to bridge.
struct ReuseDistances {
  std::uint64_t first = 0;          // uses of what was not used before
  std::uint64_t same_step = 0;      // used again in one step
  std::vector<std::uint64_t> bins;  // [i]: used again 2^i to 2^(i+1) - 1 steps later
  std::uint64_t steps = 0;          // that were counted
  bool of_blocks = false;
};

// Of one node of a stream, over its next `epochs` epochs; takes 8 bytes a block.
ReuseDistances CountReuse(UseStream& uses, std::uint32_t node, std::uint64_t blocks,
                          std::uint64_t epochs);

// Of the node of a loader with these options, from its first epoch on. Reads nothing but the index.
//
// Errors: those of SettleJob, and of making its order
Result<ReuseDistances> CountReuse(const std::shared_ptr<const Index>& index, LoaderOptions options,
                                  std::uint64_t epochs);

}  // namespace headrace
