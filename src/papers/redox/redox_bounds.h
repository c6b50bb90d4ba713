#pragma once

#include <cstdint>
#include <vector>

#include "papers/redox/redox_layout.h"
#include "papers/redox/redox_order.h"

namespace headrace {

// The most units that the places of each home take, in this layout or, with options.remap, in that
// of any epoch: if each place has the largest sample that fits there, but all samples of the home
// at most.
std::vector<std::uint64_t> UnitsOfHomes(const RedoxLayout& layout,
                                        const RedoxOrderOptions& options);

}  // namespace headrace
