#pragma once

#include <memory>
#include <string>

#include "index/index.h"

namespace headrace::bindings {

// `_core.Index`: what other bindings take an index as. The shared pointer keeps the mapping alive
// for as long as an engine or a Python object reads from it.
struct PyIndex {
  std::shared_ptr<const Index> index;
  std::string path;  // of its file, as it was opened
};

}  // namespace headrace::bindings
