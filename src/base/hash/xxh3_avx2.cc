// Compiled for processors with AVX2. It includes no C++ library: an inline function of one,
// compiled here, might be the one that the linker takes for everybody.

#include "base/hash/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headrace::internal {

std::uint64_t Xxh3HashAvx2(const void* bytes, std::size_t size) { return XXH3_64bits(bytes, size); }

void Xxh3UpdateAvx2(void* state, const void* bytes, std::size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
}

}  // namespace headrace::internal
