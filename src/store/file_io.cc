#include "store/file_io.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

namespace headrace {
namespace {

StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
      return StatusCode::kResourceExhausted;
    // Network and user-space file systems return EIO for a broken connection.
    case EIO:
    case EAGAIN:
    case EINTR:
    case ESTALE:
    case ETIMEDOUT:
    case ECONNRESET:
    case ENOTCONN:
    case ECANCELED:
      return StatusCode::kUnavailable;
    default:
      return StatusCode::kFailedPrecondition;
  }
}

}  // namespace

std::uint32_t CoarseSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint32_t>(now.tv_sec);
}

Status ErrnoStatus(int error, std::string_view call) {
  std::string text(call);
  text.append(": ").append(ErrnoText(error));
  return Status(CodeOf(error), std::move(text));
}

Result<std::size_t> ReadAt(int fd, std::span<std::byte> dst, std::uint64_t offset,
                           std::uint64_t block) {
  std::size_t got = 0;
  while (got < dst.size()) {
    const ssize_t n =
        ::pread(fd, dst.data() + got, dst.size() - got, static_cast<off_t>(offset + got));
    if (n > 0) {
      got += static_cast<std::size_t>(n);
      if (got % block != 0) break;  // Only the end of the file ends a read inside a block.
    } else if (n == 0) {
      break;
    } else if (errno == EINVAL && got == 0) {
      return Status(StatusCode::kInvalidArgument,
                    "pread: the file system refuses this offset, size or buffer (EINVAL); copy the "
                    "data to another file system");
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "pread");
    }
  }
  return got;
}

}  // namespace headrace
