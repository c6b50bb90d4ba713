#pragma once

// NumPy arrays in and out of C++ vectors.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace headrace::bindings {

// A one-dimensional array handed to Python, which owns it.
template <typename T>
using OutArray = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

// A one-dimensional array taken from Python: contiguous, on the CPU, of exactly this type.
template <typename T>
using InArray =
    nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

// Moves `values` into an array without copying them. The GIL must be held.
template <typename T>
OutArray<T> ToArray(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t size = owned->size();
  nanobind::capsule owner(owned.get(),
                          [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  static_cast<void>(owned.release());  // the capsule's, from here on
  return OutArray<T>(data, {size}, owner);
}

}  // namespace headrace::bindings
