#include "tier/tier_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace headrace {

ssize_t TierIo::Read(int fd, std::span<std::byte> to, std::uint64_t offset) {
  const ssize_t n = ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
  return n < 0 ? -errno : n;
}

ssize_t TierIo::Write(int fd, std::span<const std::byte> from, std::uint64_t offset) {
  const ssize_t n = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
  return n < 0 ? -errno : n;
}

int TierIo::Sync(int fd) { return ::fdatasync(fd) == 0 ? 0 : -errno; }

int TierIo::Rename(int folder, const char* from, const char* to) {
  return ::renameat(folder, from, folder, to) == 0 ? 0 : -errno;
}

TierIo& TierIo::System() {
  static TierIo system;
  return system;
}

Status TierIoError(int error, const std::string& doing) {
  std::string text = doing + ": " + ErrnoText(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    text += ", or lower the tier's capacity";
  return Status(StatusCode::kUnavailable, std::move(text));
}

int WriteFully(TierIo& io, int fd, std::span<const std::byte> from, std::uint64_t offset,
               std::uint64_t block) {
  while (!from.empty()) {
    const ssize_t n = io.Write(fd, from, offset);
    if (n == -EINTR) continue;
    if (n < 0) return static_cast<int>(n);
    // After a direct write that ended inside a block, the next one must begin with that block.
    const std::uint64_t written = static_cast<std::uint64_t>(n) / block * block;
    if (written == 0) return -ENOSPC;
    offset += written;
    from = from.subspan(written);
  }
  return 0;
}

ssize_t ReadFully(TierIo& io, int fd, std::span<std::byte> to, std::uint64_t offset,
                  std::uint64_t block) {
  std::size_t got = 0;
  while (got < to.size()) {
    const ssize_t n = io.Read(fd, to.subspan(got), offset + got);
    if (n == -EINTR) continue;
    if (n < 0) return n;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
    if (got % block != 0) break;  // Only the end of the file ends a read inside a block.
  }
  return static_cast<ssize_t>(got);
}

}  // namespace headrace
