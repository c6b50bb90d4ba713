#pragma once

// The status of many files at a time: storage far away answers many questions in the time of one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"

namespace headrace {

enum class FileType : std::uint8_t {
  kRegular,
  kOther,       // a folder, a pipe, a socket, a device
  kMissing,     // no such file, or a link to nothing or to itself
  kUnreadable,  // its status cannot be read
};

struct FileStatus {
  FileType type = FileType::kMissing;
  std::uint64_t size = 0;     // of a regular file
  std::int64_t mtime_ns = 0;  // of a regular file
};

// The status of `name`, below the open folder `at`. Links are followed.
FileStatus StatusOf(int at, const char* name);

// The status of each name. `executor`: its threads ask for some names each; nullptr: the calling
// thread asks for all. Waits for them.
std::vector<FileStatus> StatusOfAll(int at, std::span<const std::string> names, Executor* executor);

}  // namespace headrace
