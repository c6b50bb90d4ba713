#include "index/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "index/file_io.h"

namespace headrace::internal {
namespace {

constexpr std::size_t kBufferBytes = kMiB;
constexpr int kNamesTried = 1000;

Status SyncFolderOf(const std::string& path) {
  const std::string name = FolderOf(path);
  const UniqueFd fd(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return FileError(errno, "opening folder '" + name + "'");
  // Some file systems cannot sync a folder, and have no other way to make a name durable.
  if (fsync(fd.get()) == 0 || errno == EINVAL) return Status();
  return FileError(errno, "syncing folder '" + name + "'");
}

// A name beside `path` for which `take` succeeds; it sets errno to EEXIST where the name is taken.
Result<std::string> TakeName(const std::string& path,
                             const std::function<bool(const std::string&)>& take) {
  const std::string prefix = fmt::format("{}.tmp-{}-", path, getpid());
  for (int i = 0; i < kNamesTried; ++i) {
    std::string name = fmt::format("{}{}", prefix, i);
    if (take(name)) return name;
    if (errno == ENOENT) {
      return Status(
          StatusCode::kUnavailable,
          fmt::format("creating {}: there is no folder {}; create it", path, FolderOf(path)));
    }
    if (errno != EEXIST) return FileError(errno, "creating '" + name + "'");
  }
  return FileError(EEXIST, "creating '" + prefix + "*'");
}

}  // namespace

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  // A name for the unnamed file is made from its entry in /proc.
  if (access("/proc/self/fd", X_OK) == 0) {
    UniqueFd fd = OpenUnnamed(FolderOf(path));
    if (fd) return std::unique_ptr<AtomicFile>(new AtomicFile(path, "", std::move(fd)));
  }
  UniqueFd fd;
  HEADRACE_ASSIGN_OR_RETURN(
      std::string name, TakeName(path, [&](const std::string& free) {
        fd = UniqueFd(open(free.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        return static_cast<bool>(fd);
      }));
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(name), std::move(fd)));
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, UniqueFd fd)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(std::move(fd)) {
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (!published_ && !temporary_path_.empty()) unlink(temporary_path_.c_str());
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > kBufferBytes - buffer_.size()) {
    HEADRACE_RETURN_IF_ERROR(Flush());
  }
  if (bytes.size() > kBufferBytes) {
    HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), size_, bytes));
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += bytes.size();
  return Status();
}

Status AtomicFile::Flush() {
  HEADRACE_RETURN_IF_ERROR(WriteAll(fd_.get(), size_ - buffer_.size(), buffer_));
  buffer_.clear();
  return Status();
}

Status AtomicFile::WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  HEADRACE_CHECK(bytes.size() <= size_ && offset <= size_ - bytes.size());
  HEADRACE_RETURN_IF_ERROR(Flush());
  return WriteAll(fd_.get(), offset, bytes);
}

Status AtomicFile::Publish() {
  HEADRACE_RETURN_IF_ERROR(Flush());
  if (fsync(fd_.get()) != 0) return FileError(errno, "syncing");
  if (temporary_path_.empty()) {
    // A link cannot replace a file, a renamed one can.
    const std::string entry = fmt::format("/proc/self/fd/{}", fd_.get());
    HEADRACE_ASSIGN_OR_RETURN(temporary_path_, TakeName(path_, [&](const std::string& free) {
                                return linkat(AT_FDCWD, entry.c_str(), AT_FDCWD, free.c_str(),
                                              AT_SYMLINK_FOLLOW) == 0;
                              }));
  }
  // Network file systems report a full disk only here.
  if (close(fd_.Release()) != 0) return FileError(errno, "closing");
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return FileError(errno, "renaming '" + temporary_path_ + "'");
  }
  published_ = true;
  return SyncFolderOf(path_);
}

}  // namespace headrace::internal
