#pragma once

// store/ reads ranges of immutable objects: files through io_uring or a thread pool, memory,
// synthetic data. One interface, and one conformance suite that every implementation passes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

// How a store is to be read, so that its device is busy and reads little that nobody wants. The
// defaults are those of files on a disk.
struct StoreNeeds {
  // Extents of a step this near are one read, up to this size; then the same for a block read.
  std::uint64_t row_gap_bytes = 16 * kKiB;
  std::uint64_t row_read_bytes_max = kMiB;
  std::uint64_t block_gap_bytes = 64 * kKiB;
  std::uint64_t block_read_bytes_max = 4 * kMiB;
  // Such a read has at most so many times the bytes that are wanted of it; 0: any number.
  std::uint64_t read_growth_max = 0;
  // Reads in flight hold so many bytes, and are at least and at most so many. An answer passes
  // through three threads before the read that takes its place begins, and a fast disk gives dozens
  // of small ones in that time. Blocks are large: 16 keep any disk busy.
  std::uint64_t bytes_in_flight = 16 * kMiB;
  std::uint32_t sample_reads_min = 64;
  std::uint32_t sample_reads_max = 256;
  std::uint32_t block_reads_min = 16;
  std::uint32_t block_reads_max = 16;
  // A longer read is several requests; 0: none is.
  std::uint64_t request_bytes_max = 0;
  // Memory of its own that requests take, at least and at most; 0: none.
  std::uint64_t request_memory_least = 0;
  std::uint64_t request_memory_max = 0;
  // It repeats reads that are Unavailable, as far as that helps.
  bool retries_itself = false;
};

// What requests of a store take that has memory of its own for them. 0: as StoreNeeds say.
struct RequestLimits {
  std::uint64_t memory_bytes = 0;
  std::uint64_t bytes_max = 0;  // of one
};

// The limits of a store that has so much memory for requests: four at once, at least. Pure.
constexpr RequestLimits DivideRequests(const StoreNeeds& needs, std::uint64_t memory_bytes) {
  const std::uint64_t whole = memory_bytes - memory_bytes % kMiB;
  return {.memory_bytes = whole, .bytes_max = std::min(needs.request_bytes_max, whole / 4)};
}

// Alignment of read buffers, in bytes: the largest that O_DIRECT requires.
inline constexpr std::size_t kBufferAlignment = 4096;

// The result of ReadNow().
enum class ReadNowAnswer : std::uint8_t {
  kRead,      // `dst` has the bytes
  kNotHeld,   // the page cache does not hold them; do not call again
  kNotAsked,  // the file is not open, so the page cache was not checked
};

// One range for ReadAllNow().
struct NowRead {
  Extent extent;
  std::span<std::byte> dst;  // exactly as large; empty: it is passed over
  ReadNowAnswer answer = ReadNowAnswer::kNotAsked;
};

// One range to read. A store may read whole device blocks around the range. To avoid a copy, the
// caller gives a buffer with room for them, and receives the position of the range in it.
struct ReadRequest {
  // Runs exactly once. On success the span is the range's bytes (exactly range.size of them),
  // inside `buffer`. Runs on a thread of the store, or inside Read().
  using Done = std::function<void(Result<std::span<std::byte>>)>;

  Extent extent;
  std::span<std::byte> buffer;  // aligned to kBufferAlignment; at least BufferBytes(extent.range)
  Done done;
  bool looked = false;  // ReadNow() just returned kNotHeld: do not check the page cache again
  // The bytes that a store with shares() gave were wrong: not from memory that jobs share.
  bool past_share = false;
};

// Reads ranges of immutable objects.
//
// Thread safety: every method may be called from any thread.
// Ownership: the caller owns the buffers and keeps each alive until its `done` has run.
// Shutdown: the destructor waits until every `done` has run.
class ByteStore {
 public:
  virtual ~ByteStore() = default;

  // Size of a buffer for `range`: range.size, or more for a store that widens reads.
  [[nodiscard]] virtual std::size_t BufferBytes(ByteRange range) const = 0;

  // Starts all of `requests`; they may finish in any order. A range of size 0 gives an empty span.
  // A short read is an error, never a success.
  //
  // Errors (of a request): NotFound            no such object
  //                        OutOfRange          the range ends past the object
  //                        FailedPrecondition  the object changed since it was indexed, or may not
  //                                            be read
  //                        DataLoss            a short read; a retry will not help
  //                        ResourceExhausted   out of descriptors or memory
  //                        Unavailable         may succeed if tried again
  //                        Cancelled           `stop` was requested before the read began
  // A message reads "reading PATH bytes [8, 12): CAUSE".
  virtual void Read(std::vector<ReadRequest> requests, std::stop_token stop) = 0;

  // Checks, without reading, that the object is there and as it was indexed. May wait for storage.
  // OK where objects cannot change.
  //
  // Errors: NotFound, FailedPrecondition, ResourceExhausted, Unavailable  as of a read
  // A message reads "opening PATH: CAUSE".
  [[nodiscard]] virtual Status CheckObject(ObjectId /*object*/) { return Status(); }

  // Checks that no object that was read has changed since: those that are open, and those that were
  // until they were closed or found to have changed since the last call. For the end of an epoch,
  // whose bytes are then those of one state of the data. May wait for storage.
  //
  // Errors: FailedPrecondition, ResourceExhausted, Unavailable  as of a read
  // A message reads "reading PATH: CAUSE".
  [[nodiscard]] virtual Status CheckOpen() { return Status(); }

  // Whether CheckOpen() has anything to check. Does not wait.
  [[nodiscard]] virtual bool HasOpen() { return false; }

  // Copies all bytes of `extent` to `dst` if no device access is needed. `dst` has exactly the size
  // of the range, which is not empty, and needs no alignment. Reports no errors: Read() does. Opens
  // no file, because that may take as long as a read. For threads that use the bytes themselves,
  // while they are in the processor's cache.
  virtual ReadNowAnswer ReadNow(const Extent& /*extent*/, std::span<std::byte> /*dst*/) {
    return ReadNowAnswer::kNotAsked;
  }

  // ReadNow() for each of `reads` that has a `dst`: sets their answers. Cheaper than one by one.
  virtual void ReadAllNow(std::span<NowRead> reads) {
    for (NowRead& read : reads) {
      if (!read.dst.empty()) read.answer = ReadNow(read.extent, read.dst);
    }
  }

  // Whether the page cache holds all of `extent`, for ReadAllNow() to copy from a mapped file.
  // Waits for no device.
  virtual bool HoldsNow(const Extent& /*extent*/) { return false; }

  // Whether to try ReadNow() for the next read. Mostly false after many misses.
  virtual bool MayReadNow() { return false; }

  // Whether bytes may come from memory that other jobs filled.
  [[nodiscard]] virtual bool shares() const { return false; }

  [[nodiscard]] virtual StoreStats stats() const = 0;
};

}  // namespace headrace
