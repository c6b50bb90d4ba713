#pragma once

// Keyword arguments that are too many for a function's parameters, and those that are the members
// of a described struct (headrace/members.h). The GIL must be held.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "convert/text.h"
#include "headrace/members.h"
#include "plan/order_factory.h"
#include "status.h"

namespace headrace::bindings {

template <typename T>
T CastArgument(const char* name, nanobind::handle value) {
  T cast{};
  if (!nanobind::try_cast(value, cast)) {
    ThrowStatus(Status(StatusCode::kInvalidArgument,
                       std::string(name) + ": got " + Text(nanobind::repr(value)).bytes() +
                           ", expected another type, or a value in its range"));
  }
  return cast;
}

// Keyword arguments, each taken once; what is left at the end is a mistake.
class Keywords {
 public:
  explicit Keywords(const nanobind::dict& given) : given_(given) {}

  // std::nullopt: it is not given.
  std::optional<nanobind::object> Find(const char* name) {
    known_.append(known_.empty() ? "" : ", ").append(name);
    if (!given_.contains(name)) return std::nullopt;
    ++taken_;
    return nanobind::object(given_[name]);
  }

  template <typename T>
  T Take(const char* name, T default_value) {
    const std::optional<nanobind::object> value = Find(name);
    return value.has_value() ? CastArgument<T>(name, *value) : std::move(default_value);
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

// Whether Python has a class for these structs: then values are objects of it, and not dicts.
template <typename T>
inline constexpr bool kHasClass = false;

template <typename Struct>
void SetMembers(const nanobind::dict& given, Struct& of);

// Sets `member` to `value`: a text, a number, a list, an object or, of a described struct, a dict
// of those of its members that change.
template <typename T>
void SetMember(const char* name, nanobind::handle value, T& member) {
  if constexpr (std::is_same_v<T, std::string>) {
    member = CastArgument<Text>(name, value).bytes();
  } else if constexpr (std::is_same_v<T, SampleTable>) {
    member = value.is_none() ? nullptr : ToTable(CastArgument<InArray<std::uint32_t>>(name, value));
  } else if constexpr (requires { member.emplace_back(); }) {
    member.clear();
    for (const nanobind::handle each : CastArgument<nanobind::list>(name, value)) {
      SetMember(name, each, member.emplace_back());
    }
  } else if constexpr (requires { member.has_value(); }) {
    member.reset();
    if (!value.is_none()) SetMember(name, value, member.emplace());
  } else if constexpr (Described<T> && !kHasClass<T>) {
    SetMembers(CastArgument<nanobind::dict>(name, value), member);
  } else {
    member = CastArgument<T>(name, value);
  }
}

// Sets those members of `of` that `given` has, by name; the others stay as they are.
template <typename Struct>
void SetMembers(const nanobind::dict& given, Struct& of) {
  Keywords keywords(given);
  const auto set = [&](const char* name, auto& member) {
    if (const auto value = keywords.Find(name)) SetMember(name, *value, member);
  };
  ForEachMember(set, of);
  keywords.Finish();
}

}  // namespace headrace::bindings
