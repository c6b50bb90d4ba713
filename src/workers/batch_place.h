#pragma once

#include <cstddef>
#include <span>

#include "engine/batch.h"
#include "engine/buffer_pool.h"

namespace headrace {

// Where `row` lies in the shared memory of the batch. All memory of the batch must be shared.
BufferPlace PlaceOfRow(const Batch& batch, std::span<const std::byte> row);

}  // namespace headrace
