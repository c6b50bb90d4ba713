#pragma once

// Shared by all stores: check a request, name it in errors, answer and count it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

// "reading WHAT bytes [8, 12)", the context of a request's error.
std::string Doing(std::string_view what, ByteRange range);

// "object 7", for stores whose objects have no path.
std::string ObjectName(ObjectId object);

// Errors: OutOfRange  `range` does not lie inside an object of `object_bytes`
Status CheckRange(ByteRange range, std::uint64_t object_bytes);

// A range widened to whole blocks, and the position of the range in them.
struct WidenedRange {
  ByteRange blocks;
  std::size_t lead = 0;  // bytes of `blocks` before the range

  // Bytes of `blocks`, from its start, that contain the range; the rest is padding, and may lie
  // past the end of the object.
  std::size_t needed = 0;
};

// `alignment` is in bytes and not 0.
WidenedRange Widen(ByteRange range, std::uint64_t alignment);

// The StoreStats of a running store.
//
// Thread safety: every method may be called from any thread. Lock-free: works after a fork.
class StoreCounters {
 public:
  // Counts the answer and passes it to `request`. The buffer must fit: see CheckBuffer().
  void Answer(ReadRequest& request, Result<std::span<std::byte>> result);

  void AddDirect(std::uint64_t bytes) { bytes_direct_ += bytes; }
  void AddPageCache(std::uint64_t bytes) { bytes_page_cache_ += bytes; }
  void AddRetry() { ++retries_; }
  // Counts ranges that ReadNow() returned.
  void AddNow(std::uint64_t bytes, std::uint64_t reads = 1) {
    reads_ += reads;
    bytes_ += bytes;
  }
  // The same of those that ReadAllNow() returned. Returns their number and bytes.
  std::pair<std::uint64_t, std::uint64_t> AddAllNow(std::span<const NowRead> reads);

  [[nodiscard]] StoreStats Snapshot(std::string name, std::string note = {}) const;

 private:
  std::atomic<std::uint64_t> reads_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<std::uint64_t> bytes_direct_ = 0;
  std::atomic<std::uint64_t> bytes_page_cache_ = 0;
  std::atomic<std::uint64_t> retries_ = 0;
  std::atomic<std::uint64_t> failures_ = 0;
};

// Aborts unless the buffer is aligned and holds `bytes_min`: a wrong buffer is the caller's bug.
void CheckBuffer(const ReadRequest& request, std::size_t bytes_min);

}  // namespace headrace
