#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/memory/guarded_copy.h"
#include "headrace/status.h"

namespace headrace {

// A whole file, mapped for reading. Replacing the file (rename) does not change the mapping. After
// it was truncated, or storage failed to read it, bytes that are gone read as zeros: see
// has_lost().
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

  // Whether a read met bytes that are gone. It may have been of any size, and any time ago.
  [[nodiscard]] bool has_lost() const { return guard_.has_value() && guard_->has_lost(); }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (!bytes.empty()) guard_.emplace(bytes);
  }

  const std::span<const std::byte> bytes_;
  std::optional<MappingGuard> guard_;
};

}  // namespace headrace
