#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "headrace/status.h"
#include "profile/slice.h"

namespace headrace {

// Reads and writes an unnamed file in a folder that may become a tier, past the page cache if the
// file system supports it. The file disappears with the probe, however the process ends.
//
// Writes overwrite existing bytes and are not synced: a tier is a cache.
//
// Thread safety: one call at a time.
class FolderProbe {
 public:
  // Makes the file and writes `bytes` to it, fewer if that takes longer than
  // limits.duration_max_ns.
  //
  // Errors: InvalidArgument     bytes below kBytesMin
  //         NotFound            no such folder
  //         FailedPrecondition  the folder may not be written
  //         ResourceExhausted   no space, no memory
  //         Cancelled           keep_going returned false
  static Result<std::unique_ptr<FolderProbe>> Make(const std::string& folder, std::uint64_t bytes,
                                                   const SliceLimits& limits);
  static constexpr std::uint64_t kBytesMin = 8 * kMiB;

  // Both use random places. load.bytes is rounded up to kBufferAlignment.
  //
  // Errors: InvalidArgument  load.bytes is 0 or larger than the file, no users
  //         those of the device; Cancelled
  Result<Slice> Read(const Load& load, const SliceLimits& limits);
  Result<Slice> Write(const Load& load, const SliceLimits& limits);

  [[nodiscard]] bool direct() const { return direct_; }  // past the page cache
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  FolderProbe(std::string folder, int fd, bool direct)
      : folder_(std::move(folder)), fd_(fd), direct_(direct) {}
  Status Fill(std::uint64_t bytes, const SliceLimits& limits);
  Result<Slice> Measure(const Load& load, const SliceLimits& limits, bool writes);

  const std::string folder_;
  const UniqueFd fd_;
  bool direct_;
  std::uint64_t bytes_ = 0;
  std::uint64_t slices_ = 0;  // each slice has its own places
};

}  // namespace headrace
