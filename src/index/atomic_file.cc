#include "index/atomic_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace headrace::internal {
namespace {

constexpr std::size_t kBufferBytes = kMiB;
constexpr int kNamesTried = 1000;

Status Failed(int error, const std::string& doing) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Status(full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable, ErrnoText(error))
      .WithContext(doing);
}

Status WriteAll(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return Failed(written < 0 ? errno : ENOSPC,
                    fmt::format("writing {} at byte {}", FormatBytes(bytes.size()), offset));
    }
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return Status();
}

Status SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::string name = folder.empty() ? "." : folder;
  const UniqueFd fd(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Failed(errno, "opening folder '" + name + "'");
  // Some file systems cannot sync a folder, and have no other way to make a name durable.
  if (fsync(fd.get()) == 0 || errno == EINVAL) return Status();
  return Failed(errno, "syncing folder '" + name + "'");
}

}  // namespace

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  const std::string prefix = fmt::format("{}.tmp-{}-", path, getpid());
  for (int i = 0; i < kNamesTried; ++i) {
    std::string name = fmt::format("{}{}", prefix, i);
    UniqueFd fd(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd) {
      return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(name), std::move(fd)));
    }
    if (errno != EEXIST) return Failed(errno, "creating '" + name + "'");
  }
  return Failed(EEXIST, "creating '" + prefix + "*'");
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, UniqueFd fd)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(std::move(fd)) {
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (!published_) unlink(temporary_path_.c_str());
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
  if (fsync(fd_.get()) != 0) return Failed(errno, "syncing");
  // Network file systems report a full disk only here.
  if (close(fd_.Release()) != 0) return Failed(errno, "closing");
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return Failed(errno, "renaming '" + temporary_path_ + "'");
  }
  published_ = true;
  return SyncFolderOf(path_);
}

}  // namespace headrace::internal
