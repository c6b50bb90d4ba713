#include "base/memory/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/check.h"
#include "base/unique_fd.h"

namespace headrace {
namespace {

Status CannotRead(int error) {
  const StatusCode code =
      error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound : StatusCode::kFailedPrecondition;
  return {code, ErrnoText(error)};
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat stat = {};
  if (!fd || ::fstat(fd.get(), &stat) != 0) return CannotRead(errno);
  if (!S_ISREG(stat.st_mode))
    return Status(StatusCode::kInvalidArgument, "not a file; give the path of a file");
  const auto size = static_cast<std::size_t>(stat.st_size);
  void* const data =
      size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return CannotRead(errno);
  return std::shared_ptr<const MappedFile>(
      new MappedFile({static_cast<const std::byte*>(data), size}));
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  guard_.reset();  // The addresses may be another mapping's next.
  HEADRACE_CHECK(::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()) == 0);
}

}  // namespace headrace
