#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/ids.h"
#include "store/byte_store.h"
#include "store/file_table.h"

namespace headrace {

// Serves ranges of files from the page cache, so that direct reads of a warm dataset run at memory
// speed. Never waits for a device. Adapts to the hit rate: after 64 misses in a row it checks only
// every 16th range, until one hits; after 64 hits in a row it reads without a check, until one
// misses.
//
// Thread safety: every method may be called from any thread.
class PageCacheReader {
 public:
  // Copies all of `range` to the start of `dst` and returns true; or returns false, with `dst`
  // undefined. `range` must not be empty and lies inside the file.
  bool Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst);

  // The same for each of `reads` whose file is open in `files`: sets their answers. Copies from
  // mapped files where the system can tell what the page cache holds of them.
  void ReadAll(FileTable& files, std::span<NowRead> reads);

  // Whether ReadAll() would copy any part of `extent` from a mapped file. Touches no page.
  static bool HoldsMapped(FileTable& files, const Extent& extent);

  [[nodiscard]] bool WorthAsking();

  // Read(), unless recent misses make a hit unlikely.
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
