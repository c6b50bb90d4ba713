#pragma once

#include <cstdint>
#include <vector>

#include "headrace/index.h"
#include "headrace/loader_options.h"
#include "headrace/status.h"
#include "plan/placement/uses.h"

namespace headrace {

// How many steps lie between two uses of the same block (or sample, if the order reads no blocks).
// A tier must keep it for that long to get a hit.
struct ReuseDistances {
  std::uint64_t first = 0;          // first uses
  std::uint64_t same_step = 0;      // used again in the same step
  std::vector<std::uint64_t> bins;  // [i]: used again 2^i to 2^(i+1) - 1 steps later
  std::uint64_t steps = 0;          // steps counted
  bool of_blocks = false;
};

// Counts for one node of a stream, over its next `epochs` epochs. Takes 8 bytes for each block.
ReuseDistances CountReuse(UseStream& uses, std::uint32_t node, std::uint64_t blocks,
                          std::uint64_t epochs);

// Counts for the node of a loader with these options, from its first epoch on. Reads only the
// index.
//
// Errors: those of ResolveConfig, and of making its order
Result<ReuseDistances> CountReuse(const std::shared_ptr<const Index>& index,
                                  const LoaderOptions& options, std::uint64_t epochs);

}  // namespace headrace
