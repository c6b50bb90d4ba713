#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace headrace {

// Has GuardedCopy() and a MappingGuard survive bytes that are gone. Installs a handler of SIGBUS,
// again if somebody has replaced it since. A SIGBUS of others puts the handler before back, which
// then gets it. Cheap enough for each group of copies.
//
// Thread safety: may be called from any thread.
void InstallCopyGuard();

// Copies `from` to the start of `to`, as memcpy does. False: a page of `from` is not there, because
// a mapped file was truncated or storage failed to read it; then `to` is undefined. `from` must be
// mapped, and InstallCopyGuard() have been called.
//
// Thread safety: may be called from any thread.
bool GuardedCopy(std::span<const std::byte> from, std::span<std::byte> to);

// Has plain reads of a mapped file survive bytes that are gone, while InstallCopyGuard()'s handler
// is in place: from the page that was missed on, the mapping becomes zeros, and has_lost() is true
// from then on.
//
// Thread safety: every method may be called from any thread.
// Ownership: `mapping` is mapped for reading as long as the guard lives, and not empty.
class MappingGuard {
 public:
  explicit MappingGuard(std::span<const std::byte> mapping);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  [[nodiscard]] bool has_lost() const;

  // What the handler knows of a guarded mapping. Internal.
  struct Watched {
    std::atomic<const std::byte*> begin = nullptr;
    std::atomic<const std::byte*> end = nullptr;  // null: of no guard now
    std::atomic<bool> lost = false;
    Watched* next = nullptr;  // never changes: the list only grows
  };

 private:
  Watched& watched_;
};

}  // namespace headrace
