#pragma once

// XXH3-64 by the widest vectors of the processor. Internal to base/.

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace::internal {

// One way to compute XXH3-64, seed 0; all give the same. `state` is an XXH3_state_t of xxhash.h.
// Thread safety: any thread.
struct Xxh3 {
  const char* name;
  std::uint64_t (*hash)(const void* bytes, std::size_t size);
  void (*update)(void* state, const void* bytes, std::size_t size);
};

// Those that this processor supports, the fastest first.
std::span<const Xxh3> SupportedXxh3();

}  // namespace headrace::internal
