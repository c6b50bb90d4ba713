#pragma once

// CHECK for programmer errors: an invariant of ours that no input may break. On in release builds.

namespace headrace::internal {
[[noreturn]] void DieForCheck(const char* file, int line, const char* condition);
}  // namespace headrace::internal

// Prints the place and the condition, and aborts, unless `condition` holds.
#define HEADRACE_CHECK(condition)                                        \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ::headrace::internal::DieForCheck(__FILE__, __LINE__, #condition); \
    }                                                                    \
  } while (false)
