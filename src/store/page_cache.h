#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "store/file_table.h"

namespace headrace {

// Serves ranges of files that the page cache happens to hold, so that direct reads of a warm data
// set run at memory speed. Never waits for a device. Gives up asking when asking is in vain: after
// 64 misses in a row only every 16th range is looked for, until one is found. After 64 hits in a
// row it reads without asking first, until it misses.
//
// Thread safety: every method may be called from any thread.
class PageCacheReader {
 public:
  // Copies all of `range` to the start of `dst`, and returns true; or returns false, with the bytes
  // of `dst` undefined. `range` must not be empty and lies inside the file.
  bool Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst);

  [[nodiscard]] bool WorthAsking();

  // Read(), if that is worth asking.
  bool TryRead(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
    return WorthAsking() && Read(file, range, dst);
  }

 private:
  void Count(bool hit);

  std::atomic<std::uint32_t> hits_in_a_row_ = 0;
  std::atomic<std::uint32_t> misses_in_a_row_ = 0;
  std::atomic<std::uint32_t> asked_ = 0;
};

}  // namespace headrace
