#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "gil/gil.h"
#include "headrace/status.h"

namespace headrace::bindings {

// Throws the Python exception for `status`, which must be an error: the class of headrace.errors
// that its code stands for, with the status message as its text; or the exception that is set: of a
// signal's handler that ran meanwhile. The GIL must be held.
[[noreturn]] void ThrowStatus(const Status& status);

// The value of `result`, or its status thrown. The GIL must be held.
template <typename T>
T ValueOrThrow(Result<T> result) {
  if (!result.ok()) ThrowStatus(result.status());
  return std::move(result).value();
}

// Throws `status` unless it is OK. The GIL must be held.
inline void ThrowIfError(const Status& status) {
  if (!status.ok()) ThrowStatus(status);
}

// One call with the GIL released, its status thrown.
template <typename Call>
void RunReleased(const Call& call) {
  Status status;
  {
    const GilRelease release;
    status = call();
  }
  ThrowIfError(status);
}

}  // namespace headrace::bindings
