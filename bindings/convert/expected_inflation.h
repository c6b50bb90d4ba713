#pragma once

// What an order is expected to do to the labels of a batch, as Python sees it.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>

#include "plan/quality/labels.h"

namespace headrace::bindings {

// A dict; None if no closed form is known.
inline nanobind::object ToObject(const std::optional<ExpectedInflation>& expected) {
  if (!expected.has_value()) return nanobind::none();
  nanobind::dict dict;
  dict["sharing"] = expected->sharing;
  dict["of_blocks"] = expected->of_blocks;
  dict["correlation"] = nanobind::cast(expected->correlation);
  dict["of_labels"] = nanobind::cast(expected->of_labels);
  dict["of_blocks_first"] = expected->of_blocks_first;
  dict["of_labels_first"] = nanobind::cast(expected->of_labels_first);
  return dict;
}

}  // namespace headrace::bindings
