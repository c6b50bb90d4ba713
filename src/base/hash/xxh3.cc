#include "base/hash/xxh3.h"

#include "base/hash/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace headrace::internal {
namespace {

// By what the compiler may use on every processor of this architecture.
constexpr Xxh3 kPortable = {
    .name = "portable",
    .hash = [](const void* bytes, std::size_t size) -> std::uint64_t {
      return XXH3_64bits(bytes, size);
    },
    .update =
        [](void* state, const void* bytes, std::size_t size) {
          XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
        },
};

}  // namespace

std::span<const Xxh3> SupportedXxh3() {
#if defined(__x86_64__)
  static constexpr Xxh3 all[] = {{.name = "avx2", .hash = Xxh3HashAvx2, .update = Xxh3UpdateAvx2},
                                 kPortable};
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  return std::span<const Xxh3>(all).last(has_avx2 ? 2 : 1);
#else
  return {&kPortable, 1};
#endif
}

}  // namespace headrace::internal
