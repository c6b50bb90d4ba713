#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/units.h"
#include "headrace/ids.h"
#include "headrace/status.h"
#include "store/byte_store.h"
#include "store/file_table.h"
#include "store/objects/fetchers.h"
#include "store/objects/object_reads.h"

namespace headrace {

// Of object stores. A request takes about the time in which 1 MiB arrives: a smaller gap is read
// faster than left out. 64 MiB in flight fill a link of 10 Gbit/s whose requests take 50 ms.
inline constexpr StoreNeeds kObjectStoreNeeds = {.row_gap_bytes = kMiB,
                                                 .row_read_bytes_max = 8 * kMiB,
                                                 .block_gap_bytes = kMiB,
                                                 .block_read_bytes_max = 8 * kMiB,
                                                 .read_growth_max = 2,
                                                 .bytes_in_flight = 64 * kMiB,
                                                 .block_reads_max = 64,
                                                 .request_bytes_max = 8 * kMiB,
                                                 .request_memory_least = 4 * kMiB,
                                                 .request_memory_max = 256 * kMiB,
                                                 .retries_itself = true};

struct ObjectStoreOptions {
  FetchersOptions fetchers;
  ObjectReadsOptions reads;
  // Of a read, which is made at once; see below. No more than half of the fetchers' memory.
  std::uint64_t piece_bytes = kObjectStoreNeeds.request_bytes_max;
  std::string note = {};  // for stats()
};

// Reads ranges of objects of s3, gs, az and https. One thread drives ObjectReads, which decides,
// and Fetchers, which make the requests. A range is read in pieces of `piece_bytes`; it has failed
// once one has, and the others are then cancelled. Pieces that have begun and not ended take at
// most half of the fetchers' memory; others wait in the store, in order.
//
// A file of the catalogue is an object: its path is the URL, its time of change the version, which
// is compared with each answer. So CheckOpen() has nothing to do. CheckObject() reads one byte.
//
// A `done` runs on the store's thread and delays all other reads: it should only pass the result
// on. It must not call CheckObject(), which waits for that thread.
//
// Thread safety, shutdown: as ByteStore.
// Ownership: `catalog` and `executor` must outlive the store. It occupies one thread of the
// executor as long as it lives.
// Memory: FetchersOptions::memory_bytes at most, which stay in use once they were.
// Fork: a child must not read (FailedPrecondition); it may destroy the store, which then leaves
// everything to the parent.
class ObjectStore final : public ByteStore {
 public:
  // Errors: those of Fetchers::Make
  //         ResourceExhausted  out of descriptors
  static Result<std::unique_ptr<ObjectStore>> Open(const FileCatalog& catalog, Executor& executor,
                                                   ObjectStoreOptions options);
  ~ObjectStore() override;

  [[nodiscard]] std::size_t BufferBytes(ByteRange range) const override { return range.size; }
  void Read(std::vector<ReadRequest> requests, std::stop_token stop) override;
  [[nodiscard]] Status CheckObject(ObjectId object) override;
  [[nodiscard]] StoreStats stats() const override;

 private:
  class Loop;

  ObjectStore(std::string note, std::unique_ptr<Loop> loop);
  [[nodiscard]] bool Forked() const;

  const std::string note_;
  const pid_t pid_;  // of the process that runs the loop
  std::unique_ptr<Loop> loop_;
};

}  // namespace headrace
