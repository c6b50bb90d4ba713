#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "headrace/status.h"

namespace headrace {

// Memory that several processes map: a sealed memfd. It has no name in a file system, so nothing is
// left behind when a process dies, and limits on /dev/shm (as in containers) do not apply. The
// kernel frees it with the last descriptor and mapping. The file cannot shrink while it is mapped,
// so no process can cause SIGBUS in another one.
//
// Pages are allocated on first access and read as zero. If the system limits overcommit
// (vm.overcommit_memory=2) and cannot allocate a page, that access causes SIGBUS, as for any shared
// memory.
//
// Thread safety: every method may be called from any thread.
// Ownership: the object owns its descriptor and its mapping.
// Fork: parent and child share the pages; each sees what the other writes.
class SharedMemory {
 public:
  // New memory. `name` is for people (/proc/PID/maps shows it as memfd:NAME).
  //
  // Errors: InvalidArgument    0 bytes, more than can be mapped, or a name of more than 200 bytes
  //         ResourceExhausted  the system has no descriptor or no room for the mapping
  //         FailedPrecondition memfd_create() or sealing is refused here
  static Result<std::shared_ptr<SharedMemory>> Make(std::string_view name, std::uint64_t bytes);

  // Maps the first `bytes` of memory that another process made, given its descriptor. Checks the
  // descriptor: it is untrusted.
  //
  // Errors: InvalidArgument    0 bytes, or more than can be mapped
  //         FailedPrecondition not a memfd on small pages, not sealed against shrinking, smaller
  //                            than `bytes`, or not writable
  //         ResourceExhausted  the system has no room for the mapping
  static Result<std::shared_ptr<SharedMemory>> Map(UniqueFd fd, std::uint64_t bytes);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Valid as long as this object. Page-aligned.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // For sending it to other processes. This object keeps ownership.
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Returns pages to the system, for every process that maps them; they read as zero on the next
  // access. The range must be whole pages inside bytes(). Returns false if the system refuses: the
  // pages then stay in memory.
  bool ReturnPages(std::uint64_t offset, std::uint64_t bytes);

  // No other process is to map it from now on: fd() is -1. Not while another thread uses fd().
  void CloseDescriptor() { fd_ = UniqueFd(); }

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  static Result<std::shared_ptr<SharedMemory>> MapChecked(UniqueFd fd, std::uint64_t bytes,
                                                          std::string_view doing);

  UniqueFd fd_;
  const std::span<std::byte> bytes_;
};

// A new memfd that can be sealed and that cannot become executable, as some systems require
// (vm.memfd_noexec). On failure returns an invalid descriptor and leaves errno of memfd_create().
UniqueFd CreateMemfd(const std::string& name);

}  // namespace headrace
