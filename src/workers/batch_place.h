#pragma once

#include <cstddef>
#include <span>

#include "base/memory/buffer_pool.h"
#include "headrace/batch.h"

namespace headrace {

// Finds `row` in the shared memory of the batch. All memory of the batch must be shared. An empty
// row of a batch without memory has no place: its `memory` is null.
BufferPlace PlaceOfRow(const Batch& batch, std::span<const std::byte> row);

}  // namespace headrace
