#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headrace/ids.h"

namespace headrace {

// A mapped file, to copy blocks of it that the page cache holds: one copy of 4 KiB costs a third of
// a read by a system call. Other blocks are not touched, so that no copy waits for a device.
//
// Looks up which blocks the page cache holds for many at once, at most every other second. If a
// page is evicted in between, the copy reads it again, and then does wait.
//
// Memory: 4 bytes a MiB, address space as large as the file, and its page tables. Pages of the page
// cache count as the file's, not as this process's.
//
// Thread safety: every method may be called from any thread.
class FileMapping {
 public:
  // Counts the pages of a range that the page cache holds; none if the system does not tell.
  using CachedPages = std::function<std::uint64_t(ByteRange)>;

  // Null: the system refuses.
  static std::unique_ptr<FileMapping> Make(int fd, std::uint64_t size, CachedPages cached);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  // Whether the page cache holds `range`, by a look-up less than two seconds before `now_s` (of a
  // monotonic clock). `range` lies inside the file.
  bool MayCopy(ByteRange range, std::uint32_t now_s);

  // False: the file no longer has these bytes. InstallCopyGuard() has been called.
  [[nodiscard]] bool Copy(ByteRange range, std::span<std::byte> to) const;

  // Brings the beginning of `range` into the processor's cache, for a copy that follows.
  void Prefetch(ByteRange range) const;

 private:
  FileMapping(std::span<const std::byte> bytes, CachedPages cached);
  [[nodiscard]] std::uint32_t Look(std::uint64_t part) const;
  [[nodiscard]] std::uint32_t LookAtPages(std::span<const std::byte> part) const;
  void MapBlocks(std::span<const std::byte> part, std::uint32_t held) const;

  const std::span<const std::byte> bytes_;
  const CachedPages cached_;
  // By part: when it was looked up (seconds; 0: never) in the upper half, and which of its blocks
  // are held, a bit each, in the lower.
  std::vector<std::atomic<std::uint64_t>> looked_;
};

}  // namespace headrace
