#pragma once

#include <cstdint>

namespace headrace {

// Which store reads a dataset. docs/stores.md tells what each is good for.
enum class IoChoice : std::uint8_t {
  kAuto = 0,       // io_uring for ranges of large files where it works, else threads
  kUring = 1,      // io_uring, or an error that says why not
  kThreads = 2,    // a thread a read
  kSynthetic = 3,  // no I/O: every sample is one of a few, read at the start
};

}  // namespace headrace
