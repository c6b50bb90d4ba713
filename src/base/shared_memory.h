#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace headrace {

// Memory that several processes map: a sealed memfd. It has no name in any file system, so nothing
// is left over whatever dies, and no limit on /dev/shm applies, as in containers; it is freed with
// the last descriptor and mapping. It cannot shrink while it is mapped, so no access ever finds a
// page gone (SIGBUS), whatever a process that shares it does.
//
// Pages come with the first touch and read as zero. Where the system limits what may be promised
// (vm.overcommit_memory=2) a page that it cannot give then is a SIGBUS, as for any shared memory.
//
// Thread safety: every method may be called from any thread.
// Fork: a child has the same pages, not a copy; what either writes, both see.
class SharedMemory {
 public:
  // New memory. `name` is for people (/proc/PID/maps shows it as memfd:NAME).
  //
  // Errors: InvalidArgument    0 bytes, more than can be mapped, or a name of more than 200 bytes
  //         ResourceExhausted  the system has no descriptor or no room for the mapping
  //         FailedPrecondition memfd_create() or sealing is refused here
  static Result<std::shared_ptr<SharedMemory>> Make(std::string_view name, std::uint64_t bytes);

  // The first `bytes` of what another process made, given its descriptor. Nothing is taken on
  // trust.
  //
  // Errors: InvalidArgument    0 bytes, or more than can be mapped
  //         FailedPrecondition not a memfd on small pages, not sealed against shrinking, smaller
  //                            than `bytes`, or it may not be written
  //         ResourceExhausted  the system has no room for the mapping
  static Result<std::shared_ptr<SharedMemory>> Map(UniqueFd fd, std::uint64_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Valid as long as this object. Begins at a page.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // To be sent to other processes. Stays this object's.
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Gives pages back to the system, for every process that maps them: they read as zero and come
  // back with the next touch. The range must be whole pages, inside bytes(). What the system
  // refuses stays in memory: false.
  bool ReturnPages(std::uint64_t offset, std::uint64_t bytes);

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  static Result<std::shared_ptr<SharedMemory>> MapChecked(UniqueFd fd, std::uint64_t bytes,
                                                          std::string_view doing);

  const UniqueFd fd_;
  const std::span<std::byte> bytes_;
};

// A new file in memory that may be sealed, and that no seal lets be executed, as some systems ask
// for (vm.memfd_noexec). None, with errno: as of memfd_create().
UniqueFd CreateMemfd(const std::string& name);

}  // namespace headrace
