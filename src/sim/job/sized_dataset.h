#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headrace/batch.h"
#include "headrace/index.h"

namespace headrace {

// A dataset of which only the sizes exist: one field, stored sample after sample in one object.
// `sizes` are bytes.
//
// Memory: 8 bytes a sample.
std::shared_ptr<const Index> MakeSizedIndex(const std::vector<std::uint64_t>& sizes);

// Its field, whose rows are 8 bytes that nobody writes.
BatchField SizedField();

}  // namespace headrace
