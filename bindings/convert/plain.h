#pragma once

// Values of the core as plain ones of Python: a dict of a described struct (headrace/members.h), a
// list, a number, a message, None. The GIL must be held.

#include <nanobind/nanobind.h>

#include <concepts>
#include <ranges>
#include <string>

#include "convert/text.h"
#include "headrace/ids.h"
#include "headrace/members.h"

namespace headrace::bindings {

template <typename T>
nanobind::object Plain(const T& value) {
  if constexpr (Described<T>) {
    nanobind::dict dict;
    ForEachMember([&](const char* name, const auto& member) { dict[name] = Plain(member); }, value);
    return dict;
  } else if constexpr (std::same_as<T, std::string>) {
    return ToMessage(value);
  } else if constexpr (std::same_as<T, SampleId>) {
    return nanobind::cast(Raw(value));
  } else if constexpr (std::ranges::range<T>) {
    nanobind::list list;
    for (const auto& each : value) list.append(Plain(each));
    return list;
  } else {
    return nanobind::cast(value);
  }
}

}  // namespace headrace::bindings
