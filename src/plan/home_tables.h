#pragma once

// The homes of a dataset (docs/design/homes.md) as orders take them.

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/status.h"
#include "plan/block_map.h"
#include "plan/order_factory.h"

namespace headrace {

class Index;

// OrderRequest::homes of a dataset: a home for each sample. Null: it has one home. Takes O(samples)
// of a dataset with several homes.
//
// Errors: those of HomesOf and HomesOfSamples
Result<SampleTable> HomeTable(const Index& index);

// The home of each block. `homes` has that of each sample.
//
// Errors: InvalidArgument  `homes` has another length; or a block has samples of two homes, which
//                          those of MakeIndexBlocks never have
Result<std::vector<std::uint32_t>> HomesOfBlocks(const BlockMap& blocks,
                                                 std::span<const std::uint32_t> homes);

}  // namespace headrace
