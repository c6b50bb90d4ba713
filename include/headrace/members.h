#pragma once

#include <tuple>
#include <type_traits>

namespace headrace {

// The name and address of a member of the struct `Class`.
template <typename Class, typename Value>
struct Member {
  const char* name;
  Value Class::*pointer;
};
template <typename Class, typename Value>
Member(const char*, Value Class::*) -> Member<Class, Value>;

// Lists the members of a struct. Write it once, after the struct and in its namespace:
//
//   struct Size {
//     std::uint64_t bytes = 0;
//     Curve rate;
//   };
//   HEADRACE_MEMBERS(Size, bytes, rate)
//
// The wire form of the struct, its dict in Python and its comparison are generated from the list.
// It does not compile if the list lacks a member or if the struct is not an aggregate.
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

// Calls `visit(name, member, ...)` once for each member of a described struct: `member` is that of
// `object`, the further arguments are the same member of each of `objects`.
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
