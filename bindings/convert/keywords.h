#pragma once

// Keyword arguments that are too many for a function's parameters.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "convert/text.h"
#include "plan/order_factory.h"
#include "status.h"

namespace headrace::bindings {

// Keyword arguments, each taken once; what is left at the end is a mistake.
class Keywords {
 public:
  explicit Keywords(const nanobind::kwargs& given)
      : given_(nanobind::borrow<nanobind::dict>(given)) {}

  template <typename T>
  T Take(const char* name, T default_value) {
    known_.append(known_.empty() ? "" : ", ").append(name);
    if (!given_.contains(name)) return default_value;
    const nanobind::object value = given_[name];
    ++taken_;
    T cast{};
    if (!nanobind::try_cast(value, cast)) {
      ThrowStatus(Status(StatusCode::kInvalidArgument,
                         std::string(name) + ": got " + Text(nanobind::repr(value)).bytes() +
                             ", expected another type, or a value in its range"));
    }
    return cast;
  }

  void Finish() const {
    if (taken_ == nanobind::len(given_)) return;
    throw nanobind::type_error(("unexpected keyword argument; there are " + known_).c_str());
  }

 private:
  const nanobind::dict given_;
  std::string known_;
  std::size_t taken_ = 0;
};

inline SampleTable ToTable(const std::optional<InArray<std::uint32_t>>& array) {
  if (!array) return nullptr;
  return std::make_shared<const std::vector<std::uint32_t>>(array->data(),
                                                            array->data() + array->size());
}

}  // namespace headrace::bindings
