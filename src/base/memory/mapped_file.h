#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace headrace {

// A whole file, mapped for reading. Replacing the file (rename) does not change the mapping;
// truncating it ends this process with SIGBUS.
//
// Thread safety: every method may be called from any thread.
class MappedFile {
 public:
  // Error messages are the cause alone. Does not block on a pipe.
  //
  // Errors: NotFound            no such file
  //         InvalidArgument     a folder, a pipe, a device: not a file
  //         FailedPrecondition  the system refuses to open or map it
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Valid as long as this object; empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

}  // namespace headrace
