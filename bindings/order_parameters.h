#pragma once

// Parameters of orders between Python's dicts and C++.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "plan/order_factory.h"

namespace headrace::bindings {

inline OrderParameters ToOrderParameters(const nanobind::dict& dict) {
  OrderParameters parameters;
  for (const auto& [key, value] : dict) {
    auto& parameter = parameters[nanobind::cast<std::string>(key)];
    if (nanobind::isinstance<nanobind::str>(value)) {
      parameter = nanobind::cast<std::string>(value);
    } else {
      parameter = nanobind::cast<std::int64_t>(value);
    }
  }
  return parameters;
}

inline nanobind::dict ToDict(const OrderParameters& parameters) {
  nanobind::dict dict;
  for (const auto& [name, value] : parameters) {
    if (const auto* word = std::get_if<std::string>(&value)) {
      dict[name.c_str()] = *word;
    } else {
      dict[name.c_str()] = std::get<std::int64_t>(value);
    }
  }
  return dict;
}

}  // namespace headrace::bindings
