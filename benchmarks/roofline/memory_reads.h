#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/memory/mapped_file.h"
#include "headrace/status.h"
#include "places.h"
#include "read_files.h"
#include "reading.h"
#include "store/store_table.h"

namespace headrace {

// Ways to copy blocks of files out of the page cache into rows of a batch.
enum class CacheMethod : std::uint8_t {
  kStore,   // ByteStore::ReadNow(), by which the engine reads what the page cache holds
  kPread,   // bare preadv2() with RWF_NOWAIT: the call that ReadNow() makes
  kGather,  // memcpy() from mapped files, as NumPy's take() of a memory map
};

// What the engine does with bytes in memory: blocks of a staging buffer, into rows of a batch.
enum class CopyMethod : std::uint8_t {
  kCopy,          // memcpy()
  kChecksum,      // the index's checksum, which fetch/verifier.h compares
  kCopyChecksum,  // memcpy(), then the checksum of the copy
};

// Reads of files that the page cache holds, and copies in memory.
//
// Thread safety: one call at a time.
class MemoryReads {
 public:
  // For loads of up to `threads` threads and `block_bytes`. `files` outlive it.
  //
  // Errors: ResourceExhausted  no memory
  static Result<MemoryReads> Make(const ReadFiles& files, int threads, std::uint64_t block_bytes);

  // Each thread copies blocks, one after the other, for about so long.
  //
  // Errors: FailedPrecondition  the page cache does not hold the files
  //         those of reading
  Result<Reading> MeasureCache(CacheMethod method, const Load& load, Places& places,
                               std::int64_t duration_ns);

  // The blocks are in a random order, and many times what processor caches hold.
  Result<Reading> MeasureCopy(CopyMethod method, const Load& load, std::uint64_t seed,
                              std::int64_t duration_ns);

 private:
  class Rows;

  MemoryReads(const ReadFiles& files, BlockMemory rows, std::uint64_t thread_bytes)
      : files_(files), rows_(std::move(rows)), thread_bytes_(thread_bytes) {}

  // Opens and maps the files, touching every page, so that readings do not pay for it.
  Status OpenFiles();

  const ReadFiles& files_;
  BlockMemory rows_;  // targets
  const std::uint64_t thread_bytes_;
  std::optional<BlockMemory> staging_;  // sources of copies; made by their first use
  // Made by the first use of files:
  StoreParts store_;
  std::vector<UniqueFd> fds_;
  std::vector<std::shared_ptr<const MappedFile>> mapped_;
};

}  // namespace headrace
