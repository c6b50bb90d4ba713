#pragma once

// The system calls of an SSD tier: one place to translate their errors, and to make them fail in
// tests.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "headrace/status.h"

namespace headrace {

// Alignment of memory and offsets of direct reads and writes, in bytes.
inline constexpr std::uint64_t kTierBlock = 4096;

// Each does what its system call does; a negative result is -errno.
//
// Thread safety: every method may be called from any thread.
class TierIo {
 public:
  virtual ~TierIo() = default;
  virtual ssize_t Read(int fd, std::span<std::byte> to, std::uint64_t offset);
  virtual ssize_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset);
  virtual int Sync(int fd);  // fdatasync
  virtual int Rename(int folder, const char* from, const char* to);

  // The default of a tier.
  static TierIo& System();
};

// Unavailable: "DOING: No space left on device; free space there, or lower the tier's capacity".
Status TierIoError(int error, const std::string& doing);

// Writes all of `from`. Continues after EINTR and short writes; `block`: the alignment of `fd` in
// bytes, 1 if none. Returns 0 or -errno.
int WriteFully(TierIo& io, int fd, std::span<const std::byte> from, std::uint64_t offset,
               std::uint64_t block);

// Reads until `to` is full or the file ends. Returns the number of bytes, or -errno.
ssize_t ReadFully(TierIo& io, int fd, std::span<std::byte> to, std::uint64_t offset,
                  std::uint64_t block);

}  // namespace headrace
