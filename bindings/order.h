#pragma once

#include <memory>

#include "plan/block_map.h"

namespace headrace::bindings {

// `_core.Blocks`: how a dataset falls into blocks, with or without data behind it.
struct PyBlocks {
  std::shared_ptr<const BlockMap> blocks;
};

}  // namespace headrace::bindings
