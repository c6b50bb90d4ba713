#include "tier/testing/ssd_folder.h"

#include <fstream>
#include <iterator>

namespace headrace {

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace headrace
