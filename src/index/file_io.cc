#include "index/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/units.h"

namespace headrace::internal {

Status FileError(int error, const std::string& doing) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status(full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable, ErrnoText(error))
      .WithContext(doing);
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

UniqueFd OpenUnnamed(const std::string& folder) {
  return UniqueFd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
}

Status WriteAll(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return FileError(written < 0 ? errno : ENOSPC,
                       fmt::format("writing {} at byte {}", FormatBytes(bytes.size()), offset));
    }
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status();
}

Status ReadAll(int fd, std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t read = pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) {
      const Status cause = read < 0 ? FileError(errno, "a temporary file")
                                    : Status(StatusCode::kUnavailable,
                                             "a temporary file has lost its end; use another disk");
      return cause.WithContext(
          fmt::format("reading {} at byte {}", FormatBytes(to.size()), offset));
    }
    offset += static_cast<std::uint64_t>(read);
    to = to.subspan(static_cast<std::size_t>(read));
  }
  return Status();
}

}  // namespace headrace::internal
