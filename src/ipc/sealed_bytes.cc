#include "ipc/sealed_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/shared_memory.h"
#include "base/units.h"
#include "ipc/packet.h"

namespace headrace {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr std::uint64_t kBlock = 512;  // stat's unit, for every file system

}  // namespace

Result<UniqueFd> MakeSealed(std::span<const std::byte> bytes) {
  const std::string doing = "preparing a message of " + FormatBytes(bytes.size());
  UniqueFd fd = CreateMemfd("headrace-message");
  if (!fd) return internal::SystemError(doing, errno);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t written =
        ::pwrite(fd.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return internal::SystemError(doing, written == 0 ? ENOSPC : errno);
    at += static_cast<std::size_t>(written);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return internal::SystemError(doing, errno);
  return fd;
}

Result<std::uint64_t> SealedBytes(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Status(StatusCode::kDataLoss,
                  "receiving a message: its payload is not in a sealed memfd");
  }
  struct stat stat {};
  if (::fstat(fd, &stat) != 0) return internal::SystemError("receiving a message", errno);
  const auto bytes = static_cast<std::uint64_t>(stat.st_size);
  if (static_cast<std::uint64_t>(stat.st_blocks) < bytes / kBlock) {
    return Status(StatusCode::kDataLoss, "receiving a message: a payload of " + FormatBytes(bytes) +
                                             " in a memfd with holes");
  }
  return bytes;
}

Status ReadSealed(int fd, std::span<std::byte> to) {
  for (std::size_t at = 0; at < to.size();) {
    const ssize_t read = ::pread(fd, to.data() + at, to.size() - at, static_cast<off_t>(at));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return internal::SystemError("receiving a message", read == 0 ? EIO : errno);
    at += static_cast<std::size_t>(read);
  }
  return Status();
}

}  // namespace headrace
