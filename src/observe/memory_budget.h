#pragma once

#include <cstdint>

#include "base/members.h"

namespace headrace {

// How a loader's memory is divided between its uses. Bytes, as buffers are charged
// (BufferPool::ChargedBytes).
struct Budget {
  std::uint64_t staging_bytes = 0;
  std::uint64_t batch_bytes = 0;  // all of them
  std::uint32_t batches_max = 0;  // in work or ready
  std::uint64_t resident_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t results_bytes = 0;
  std::uint64_t decoded_bytes = 0;  // objects that the store decodes as a whole
};
HEADRACE_MEMBERS(Budget, staging_bytes, batch_bytes, batches_max, resident_bytes, pinned_bytes,
                 scratch_bytes, results_bytes, decoded_bytes)

}  // namespace headrace
