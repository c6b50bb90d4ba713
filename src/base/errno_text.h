#pragma once

#include <cstring>
#include <string>

namespace headrace {

// What the system says of an errno: "No such file or directory". May be called from any thread.
inline std::string ErrnoText(int error) {
  char room[128];
  return ::strerror_r(error, room, sizeof room);  // GNU's: the text may lie elsewhere
}

}  // namespace headrace
