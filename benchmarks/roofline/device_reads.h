#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "headrace/status.h"
#include "places.h"
#include "read_files.h"
#include "reading.h"

namespace headrace {

// Ways to keep reads of a device in flight.
enum class DeviceMethod : std::uint8_t {
  kStore,  // the store that a loader opens, with its thread; asked by another thread, as by the
           // engine
  kRing,   // a bare io_uring with the store's flags: what the store is made of
  kFixed,  // the same with registered buffers and files, which the store does not use
  kSmall,  // kRing with buffers in pages of 4 KiB, as a tool has them that asks for no huge pages
};

// Reads of files that the page cache does not hold.
//
// Thread safety: one call at a time.
class DeviceReads {
 public:
  // For loads of up to `bytes` in flight. `buffered`: through the page cache, as a loader reads
  // small files; otherwise past it.
  //
  // Errors: ResourceExhausted  no memory
  static Result<DeviceReads> Make(const ReadFiles& files, std::uint64_t bytes, bool buffered);

  // Keeps `load.depth` reads of each thread in flight for about so long, from when all are. Each
  // thread has a store or a ring of its own. Removes the files from the page cache before.
  //
  // Errors: FailedPrecondition  the page cache holds pages of the files; direct reads are not
  //                             supported here
  //         those of reading
  Result<Reading> Measure(DeviceMethod method, const Load& load, Places& places,
                          std::int64_t duration_ns);

  // The store that was used last, and why if there was a choice.
  [[nodiscard]] const std::string& store_name() const { return store_name_; }

 private:
  DeviceReads(const ReadFiles& files, bool buffered, BlockMemory memory)
      : files_(files), buffered_(buffered), memory_(std::move(memory)) {}

  const ReadFiles& files_;
  const bool buffered_;
  BlockMemory memory_;
  std::optional<BlockMemory> small_memory_;  // made by its first use
  std::string store_name_;
};

}  // namespace headrace
