#pragma once

// XXH3-64 for processors with AVX2. Internal to base/hash.

#include <cstddef>
#include <cstdint>

namespace headrace::internal {

std::uint64_t Xxh3HashAvx2(const void* bytes, std::size_t size);
void Xxh3UpdateAvx2(void* state, const void* bytes, std::size_t size);

}  // namespace headrace::internal
