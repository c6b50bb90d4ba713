#include "convert/text.h"

#include <cstring>

#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

nb::str Decoded(std::string_view text, const char* errors) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), errors);
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

// Shows a str that has no bytes as Python does, with its surrogates escaped.
[[noreturn]] void Refuse(nb::handle source, std::string_view cause) {
  const nb::object shown = nb::steal(PyObject_ASCII(source.ptr()));
  if (!shown.is_valid()) throw nb::python_error();
  ThrowStatus(Status(StatusCode::kInvalidArgument,
                     "text " + Text(shown).bytes() + ": " + std::string(cause)));
}

std::string WithoutNul(nb::handle source, std::string_view text) {
  if (text.find('\0') != std::string_view::npos) {
    Refuse(source, "has a NUL character, which no name may have; leave it out");
  }
  return std::string(text);
}

}  // namespace

nb::str ToName(std::string_view name) { return Decoded(name, "surrogateescape"); }

nb::str ToMessage(std::string_view message) { return Decoded(message, "backslashreplace"); }

std::string Text::bytes() const {
  nb::object encoded = source_;
  if (PyUnicode_Check(source_.ptr())) {
    // Mostly it is UTF-8, which needs no object.
    Py_ssize_t size = 0;
    if (const char* const text = PyUnicode_AsUTF8AndSize(source_.ptr(), &size)) {
      return WithoutNul(source_, {text, static_cast<std::size_t>(size)});
    }
    if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
    PyErr_Clear();
    encoded = nb::steal(PyUnicode_AsEncodedString(source_.ptr(), "utf-8", "surrogateescape"));
    if (!encoded.is_valid()) {
      if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
      PyErr_Clear();
      Refuse(source_,
             "has a surrogate (U+D800 to U+DFFF) that stands for no character, and for no byte of "
             "a file's name; check how the text was decoded");
    }
  }
  const auto bytes = nb::borrow<nb::bytes>(encoded);
  return WithoutNul(source_, {bytes.c_str(), bytes.size()});
}

}  // namespace headrace::bindings
