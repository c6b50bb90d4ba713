#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/memory/buffer_pool.h"
#include "workers/layout.h"

namespace headrace {

// A transformed batch. Its destructor frees its memory, on any thread.
struct TransformedBatch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  bool ends_epoch = false;
  bool beyond_budget = false;  // made while the consumer held all memory for batches
  std::vector<SampleId> samples;
  OutputLayout layout;
  std::vector<std::string> objects;  // of each task, by slot: its leaves that are not arrays
  Buffer memory;
};

}  // namespace headrace
