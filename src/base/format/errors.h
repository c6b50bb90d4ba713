#pragma once

// Errors with formatted messages: InvalidArgument("rank: got {}, must be below {}", rank, ranks).
//
// Include it in sources only, not in headers: it includes fmt, which users of the core may not
// have. It is not installed.

#include <fmt/core.h>

#include <utility>

#include "headrace/status.h"

namespace headrace {

template <typename... Args>
Status DataLoss(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kDataLoss, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
Status FailedPrecondition(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kFailedPrecondition, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
Status NotFound(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kNotFound, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
Status OutOfRange(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kOutOfRange, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> text, Args&&... args) {
  return {StatusCode::kResourceExhausted, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace headrace
