#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "headrace/status.h"

namespace headrace::internal {

// A file that appears at its path whole or not at all: written without a name, synced, named beside
// its path, then renamed over it.
//
// Thread safety: one thread at a time.
// Shutdown: the destructor deletes what was written, unless Publish() succeeded. A killed process
//           leaves nothing, unless it was between naming and renaming; where the file system has no
//           unnamed files, or /proc is missing, it leaves a file `path`.tmp-PID-N.
// Errors of all: ResourceExhausted  the disk, a quota or a limit on file sizes is reached
//                Unavailable        any other failure to write
class AtomicFile {
 public:
  static Result<std::unique_ptr<AtomicFile>> Create(const std::string& path);

  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Adds `bytes` at the end. Buffered.
  Status Append(std::span<const std::byte> bytes);

  // Bytes appended so far.
  [[nodiscard]] std::uint64_t size() const { return size_; }

  // Writes over bytes that were appended before.
  Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);

  // Makes the file and its name durable. If syncing the folder fails after the rename, the file
  // stays: it is complete. Call once, last.
  Status Publish();

 private:
  AtomicFile(std::string path, std::string temporary_path, UniqueFd fd);

  Status Flush();

  const std::string path_;
  std::string temporary_path_;  // empty: the file has no name yet
  UniqueFd fd_;
  bool published_ = false;
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace headrace::internal
