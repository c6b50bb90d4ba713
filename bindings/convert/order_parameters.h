#pragma once

// Parameters of orders between Python's dicts and C++.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "convert/text.h"
#include "plan/order_factory.h"

namespace headrace::bindings {

inline OrderParameters ToOrderParameters(const nanobind::dict& dict) {
  OrderParameters parameters;
  for (const auto& [key, value] : dict) {
    if (!nanobind::isinstance<nanobind::str>(key)) {
      throw nanobind::type_error("the name of an order's parameter is a str");
    }
    auto& parameter = parameters[Text(key).bytes()];
    if (nanobind::isinstance<nanobind::str>(value)) {
      parameter = Text(value).bytes();
    } else if (std::int64_t number = 0; nanobind::try_cast(value, number)) {
      parameter = number;
    } else {
      throw nanobind::type_error("a parameter of an order is a whole number below 2**63 or a word");
    }
  }
  return parameters;
}

inline nanobind::dict ToDict(const OrderParameters& parameters) {
  nanobind::dict dict;
  for (const auto& [name, value] : parameters) {
    if (const auto* word = std::get_if<std::string>(&value)) {
      dict[ToName(name)] = *word;
    } else {
      dict[ToName(name)] = std::get<std::int64_t>(value);
    }
  }
  return dict;
}

}  // namespace headrace::bindings
