#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "convert/text.h"
#include "headrace/index.h"
#include "store/file_table.h"

namespace headrace::bindings {

// `_core.Index`: what other bindings take an index as. The shared pointer keeps the mapping alive
// for as long as an engine or a Python object reads from it.
struct PyIndex {
  std::shared_ptr<const Index> index;
  std::string path;  // of its file, as it was opened
};

// What errors advise of a file that changed, of a link to nothing, of what is no regular file.
inline FileRemedies ToRemedies(const std::tuple<Text, Text, Text>& texts) {
  return {std::get<0>(texts).bytes(), std::get<1>(texts).bytes(), std::get<2>(texts).bytes()};
}

}  // namespace headrace::bindings
