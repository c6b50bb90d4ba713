#pragma once

// Converts text between Python and the core. No other file decides how bytes become characters.
//
// Text of the core is bytes, mostly UTF-8, but a file name may be any bytes. In Python,
//
// - a name (of a file, a tier, a field) is a str as os.fsdecode() returns it: bytes that are not
//   UTF-8 become surrogates, from which os.fsencode() and the core restore the bytes. A std::string
//   that is returned to Python becomes a name.
// - a message (an error, a reason, a note) is for people: bytes that are not UTF-8 become \xNN, so
//   that it can be printed, logged and stored anywhere. See ToMessage().
// - a parameter from Python has the type Text; one of type std::string does not compile.
//
// The casters of nanobind do none of this: tools/tidy.py refuses them. The GIL must be held.

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>

namespace headrace::bindings {

// A str or bytes argument from Python.
class Text {
 public:
  Text() = default;
  explicit Text(nanobind::handle source) : source_(nanobind::borrow(source)) {}

  // Its bytes. Throws InvalidArgumentError if it has a surrogate that stands for no byte, or a NUL,
  // at which the system would cut a path.
  [[nodiscard]] std::string bytes() const;

 private:
  nanobind::object source_;
};

// `name` as os.fsdecode() returns it.
nanobind::str ToName(std::string_view name);

// `message` in a form that can be printed everywhere.
nanobind::str ToMessage(std::string_view message);

}  // namespace headrace::bindings

namespace nanobind::detail {

template <>
struct type_caster<headrace::bindings::Text> {
  NB_TYPE_CASTER(headrace::bindings::Text, const_name("str | bytes"))

  bool from_python(handle source, std::uint32_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    if (!PyUnicode_Check(source.ptr()) && !PyBytes_Check(source.ptr())) return false;
    value = headrace::bindings::Text(source);
    return true;
  }

  static handle from_cpp(const headrace::bindings::Text& text, rv_policy policy,
                         cleanup_list* cleanup) noexcept = delete;
};

// To Python only.
template <>
struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept = delete;

  static handle from_cpp(const std::string& name, rv_policy /*policy*/,
                         cleanup_list* /*cleanup*/) noexcept {
    return PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()),
                                "surrogateescape");
  }
};

}  // namespace nanobind::detail
