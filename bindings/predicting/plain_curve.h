#pragma once

// A curve as plain Python has it.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "headrace/machine_model.h"
#include "status.h"

namespace headrace::bindings {

using PlainPoints = std::vector<std::pair<double, double>>;  // (users, rate)

// Without points: no limit. Throws the errors of Curve::Make().
inline Curve ToCurve(const PlainPoints& plain) {
  if (plain.empty()) return {};
  std::vector<Curve::Point> points;
  points.reserve(plain.size());
  for (const auto& [users, rate] : plain) points.push_back({.users = users, .rate = rate});
  return ValueOrThrow(Curve::Make(std::move(points)));
}

}  // namespace headrace::bindings
