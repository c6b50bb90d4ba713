#pragma once

#include <memory>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/shared_memory.h"

namespace headrace {

// The memory of a Batch's rows. Any thread may destroy it, which returns the memory to its pool.
struct BatchMemory {
  Buffer rows;
  std::vector<Buffer> extra;  // ragged rows of stand-ins that need more room than was planned
  // For a batch of another process: `lease` tells it when the batch is gone; `mapped` has the rows.
  std::shared_ptr<const void> lease;
  std::vector<std::shared_ptr<SharedMemory>> mapped;
};

}  // namespace headrace
