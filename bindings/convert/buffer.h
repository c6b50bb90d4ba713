#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

namespace headrace::bindings {

// The bytes of any object with the buffer protocol, for as long as this lives. The GIL must be held
// when it is made and destroyed.
class Buffer {
 public:
  explicit Buffer(nanobind::handle source, bool writable = false) {
    const int flags = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(source.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return writable_bytes(); }
  // Of one that was made writable.
  [[nodiscard]] std::span<std::byte> writable_bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace headrace::bindings
