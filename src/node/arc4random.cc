// Only in wheels, where gRPC and libstdc++ are linked as archives: gRPC takes random numbers from
// libstdc++, and libstdc++ 12 from this function of glibc 2.36. With one of its own the program
// also runs with an older glibc.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  // So few bytes come whole. It fails only on kernels before 3.17, which lack io_uring, too.
  if (getrandom(&number, sizeof(number), 0) != sizeof(number)) std::abort();
  return number;
}
