#pragma once

#include <cstdint>

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
};

}  // namespace headrace
