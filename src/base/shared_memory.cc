#include "base/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kMemoryPage = 4096;
constexpr std::uint64_t kBytesMax = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::size_t kNameBytesMax = 200;  // the kernel's own limit is 249

// Linux 6.3; older headers lack it. Forbids making the memory executable. A kernel may be
// configured to refuse a memfd without it.
constexpr unsigned kNoExecSeal = 0x0008;

Status SystemError(const std::string& doing, int error) {
  const bool exhausted =
      error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC || error == EFBIG;
  std::string text = doing + ": " + ErrnoText(error);
  return {exhausted ? StatusCode::kResourceExhausted : StatusCode::kFailedPrecondition,
          std::move(text)};
}

}  // namespace

UniqueFd CreateMemfd(const std::string& name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(::memfd_create(name.c_str(), kFlags | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name.c_str(), kFlags));
  return fd;
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::Make(std::string_view name,
                                                         std::uint64_t bytes) {
  const std::string doing =
      "making shared memory " + std::string(name) + " of " + FormatBytes(bytes);
  if (bytes == 0 || bytes > kBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  doing + ": must be in [1 byte, " + FormatBytes(kBytesMax) + "]");
  }
  if (name.size() > kNameBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  doing + ": the name may have " + std::to_string(kNameBytesMax) + " bytes");
  }
  UniqueFd fd = CreateMemfd(std::string(name));
  if (!fd) return SystemError(doing, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return SystemError(doing, errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError(doing + ": sealing it", errno);
  }
  return MapChecked(std::move(fd), bytes, doing);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::Map(UniqueFd fd, std::uint64_t bytes) {
  const std::string doing = "mapping shared memory of " + FormatBytes(bytes);
  if (bytes == 0 || bytes > kBytesMax) {
    return Status(StatusCode::kInvalidArgument,
                  doing + ": must be in [1 byte, " + FormatBytes(kBytesMax) + "]");
  }
  const auto refused = [&](const std::string& why) {
    return Status(StatusCode::kFailedPrecondition, doing + ": " + why);
  };
  // Only memory files have seals. A memfd of huge pages has them, too, but its pages can run out.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  struct statfs system {};
  if (seals < 0 || ::fstatfs(fd.get(), &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return refused("the descriptor received is not a memfd");
  }
  if ((seals & F_SEAL_SHRINK) == 0) return refused("it is not sealed against shrinking");
  struct stat stat {};
  if (::fstat(fd.get(), &stat) != 0) return SystemError(doing, errno);
  if (stat.st_size < 0 || static_cast<std::uint64_t>(stat.st_size) < bytes) {
    return refused("it has " + Counted(static_cast<std::uint64_t>(stat.st_size), "byte"));
  }
  return MapChecked(std::move(fd), bytes, doing);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::MapChecked(UniqueFd fd, std::uint64_t bytes,
                                                               std::string_view doing) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (memory == MAP_FAILED) return SystemError(std::string(doing), errno);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), {static_cast<std::byte*>(memory), bytes}));
}

SharedMemory::~SharedMemory() { HEADRACE_CHECK(::munmap(bytes_.data(), bytes_.size()) == 0); }

bool SharedMemory::ReturnPages(std::uint64_t offset, std::uint64_t bytes) {
  HEADRACE_CHECK(offset % kMemoryPage == 0 && bytes % kMemoryPage == 0 && bytes > 0);
  HEADRACE_CHECK(offset <= bytes_.size() && bytes <= bytes_.size() - offset);
  // The same without the descriptor; of pages that are locked in memory the system refuses it.
  if (!fd_) return ::madvise(bytes_.data() + offset, bytes, MADV_REMOVE) == 0;
  int result = -1;
  do {
    result = ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace headrace
