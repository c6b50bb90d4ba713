#pragma once

// CHECK for programmer errors: an invariant that no input may break. Enabled in release builds.

namespace headrace::internal {
[[noreturn]] void DieForCheck(const char* file, int line, const char* condition);
}  // namespace headrace::internal

// Prints the place and the condition and aborts if `condition` is false.
#define HEADRACE_CHECK(condition)                                        \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ::headrace::internal::DieForCheck(__FILE__, __LINE__, #condition); \
    }                                                                    \
  } while (false)
