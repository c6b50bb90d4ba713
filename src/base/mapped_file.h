#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace headrace {

// A whole file, mapped for reading. Replaced by another of its name it stays what it was; who makes
// it shorter meanwhile ends this process (SIGBUS).
//
// Thread safety: every method may be called from any thread.
class MappedFile {
 public:
  // Messages are the cause alone; never waits for a pipe's other end.
  //
  // Errors: NotFound            no such file
  //         InvalidArgument     a folder, a pipe, a device: not a file
  //         FailedPrecondition  the system does not let it be opened or mapped
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Valid as long as this object; none of an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

}  // namespace headrace
