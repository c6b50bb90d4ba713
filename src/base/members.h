#pragma once

#include <tuple>
#include <type_traits>

namespace headrace {

// A member of the struct `Class`, by name.
template <typename Class, typename Value>
struct Member {
  const char* name;
  Value Class::*pointer;
};
template <typename Class, typename Value>
Member(const char*, Value Class::*) -> Member<Class, Value>;

// Describes a struct once, beside it and in its namespace:
//
//   struct Size {
//     std::uint64_t bytes = 0;
//     Curve rate;
//   };
//   HEADRACE_MEMBERS(Size, bytes, rate)
//
// Its wire form, its dict in Python and its comparison follow from the list. A list that lacks a
// member does not compile, and neither does one of a struct that is no aggregate.
#define HEADRACE_MEMBERS(Type, ...)                                                       \
  constexpr auto MembersOf(const Type* /*of*/) {                                          \
    return std::tuple{HEADRACE_MEMBERS_EXPAND(HEADRACE_MEMBERS_EACH(Type, __VA_ARGS__))}; \
  }                                                                                       \
  [[maybe_unused]] constexpr void CheckThatMembersAreAll(const Type& of) {                \
    [[maybe_unused]] const auto& [__VA_ARGS__] = of;                                      \
  }

#define HEADRACE_MEMBERS_EACH(Type, name, ...)       \
  ::headrace::Member{#name, &Type::name} __VA_OPT__( \
      , HEADRACE_MEMBERS_AGAIN HEADRACE_MEMBERS_PARENS(Type, __VA_ARGS__))
#define HEADRACE_MEMBERS_AGAIN() HEADRACE_MEMBERS_EACH
#define HEADRACE_MEMBERS_PARENS ()
// For up to 64 members.
#define HEADRACE_MEMBERS_EXPAND(...) \
  HEADRACE_MEMBERS_EXPAND4(          \
      HEADRACE_MEMBERS_EXPAND4(HEADRACE_MEMBERS_EXPAND4(HEADRACE_MEMBERS_EXPAND4(__VA_ARGS__))))
#define HEADRACE_MEMBERS_EXPAND4(...) \
  HEADRACE_MEMBERS_EXPAND3(           \
      HEADRACE_MEMBERS_EXPAND3(HEADRACE_MEMBERS_EXPAND3(HEADRACE_MEMBERS_EXPAND3(__VA_ARGS__))))
#define HEADRACE_MEMBERS_EXPAND3(...) \
  HEADRACE_MEMBERS_EXPAND2(           \
      HEADRACE_MEMBERS_EXPAND2(HEADRACE_MEMBERS_EXPAND2(HEADRACE_MEMBERS_EXPAND2(__VA_ARGS__))))
#define HEADRACE_MEMBERS_EXPAND2(...) __VA_ARGS__

template <typename T>
concept Described = requires(const T* of) {
  MembersOf(of);
};

// Calls `visit(name, member, ...)` for each member of a described struct, of all `objects` at once.
template <typename Visit, typename T, typename... Same>
requires Described<std::remove_const_t<T>>
constexpr void ForEachMember(Visit&& visit, T& object, Same&... objects) {
  const auto one = [&](const auto& member) {
    visit(member.name, object.*member.pointer, objects.*member.pointer...);
  };
  std::apply([&](const auto&... each) { (one(each), ...); },
             MembersOf(static_cast<const std::remove_const_t<T>*>(nullptr)));
}

}  // namespace headrace
