#include "status.h"

#include <nanobind/nanobind.h>

#include "convert/text.h"
#include "module.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// The table in the docstring of python/headrace/errors.py, read from left to right.
const char* ExceptionName(StatusCode code) {
  switch (code) {
    case StatusCode::kCancelled:
      return "CancelledError";
    case StatusCode::kInvalidArgument:
      return "InvalidArgumentError";
    case StatusCode::kDeadlineExceeded:
      return "DeadlineExceededError";
    case StatusCode::kNotFound:
      return "NotFoundError";
    case StatusCode::kResourceExhausted:
      return "ResourceExhaustedError";
    case StatusCode::kFailedPrecondition:
      return "FailedPreconditionError";
    case StatusCode::kOutOfRange:
      return "OutOfRangeError";
    case StatusCode::kUnavailable:
      return "UnavailableError";
    case StatusCode::kDataLoss:
      return "DataLossError";
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return "InternalError";
}

}  // namespace

void BindStatus(nb::module_& module) {
  module.def(
      "status_codes",
      [] {
        nb::dict codes;
        for (const StatusCode code :
             {StatusCode::kCancelled, StatusCode::kInvalidArgument, StatusCode::kDeadlineExceeded,
              StatusCode::kNotFound, StatusCode::kResourceExhausted,
              StatusCode::kFailedPrecondition, StatusCode::kOutOfRange, StatusCode::kInternal,
              StatusCode::kUnavailable, StatusCode::kDataLoss}) {
          codes[ExceptionName(code)] = static_cast<int>(code);
        }
        return codes;
      },
      nb::sig("def status_codes() -> dict[str, int]"),
      "By the name of an error of headrace.errors: its number in messages between processes.");
}

void ThrowStatus(const Status& status) {
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const nb::str message = ToMessage(status.message());
  const nb::object type =
      nb::module_::import_("headrace.errors").attr(ExceptionName(status.code()));
  PyErr_SetObject(type.ptr(), message.ptr());
  throw nb::python_error();
}

}  // namespace headrace::bindings
