#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/index.h"
#include "headrace/status.h"
#include "loader/session/open_store.h"
#include "profile/slice.h"

namespace headrace {

// A slice of reads, with figures that tell whether the reads were cold.
struct StorageSlice {
  Slice slice;
  std::uint64_t read_bytes = 0;    // of all reads, including those not counted
  std::int64_t device_bytes = -1;  // read from devices for this process meanwhile; -1: unknown
};

// The stored bytes of one field of a sample.
struct FetchedSample {
  SampleId id{};
  std::string bytes;
};

// Reads a dataset's files through the store that a loader would open, but always past the page
// cache if the file system supports it: it measures storage, not memory.
//
// Places are random. A place is read again only after all others of its size, up to a million
// places. Caches below the kernel (a disk's, a hypervisor's, a file server's) are part of the
// measurement.
//
// Thread safety: one call at a time.
class StorageProbe {
 public:
  // Errors: InvalidArgument  the dataset has nothing to read: all its fields are inline
  //         those of OpenStore()
  static Result<std::unique_ptr<StorageProbe>> Open(std::shared_ptr<const Index> index);
  ~StorageProbe();
  StorageProbe(const StorageProbe&) = delete;
  StorageProbe& operator=(const StorageProbe&) = delete;

  // True if the loader reads ranges of large files; false if it reads whole files, one for each
  // sample.
  [[nodiscard]] bool reads_ranges() const { return reads_ranges_; }
  // The size of the largest file: no range is larger.
  [[nodiscard]] std::uint64_t object_bytes_max() const { return object_bytes_max_; }
  [[nodiscard]] StoreStats stats() const { return store_.store().stats(); }

  // Reads ranges of `load.bytes`, `load.users` of them in flight.
  //
  // Errors: InvalidArgument  load.bytes is larger than every file, or users below 1
  //         Cancelled        keep_going returned false
  //         those of reading
  Result<StorageSlice> ReadRanges(const Load& load, const SliceLimits& limits);

  // Reads one stored field of random samples, at most kSampleBytesMax bytes of each.
  Result<StorageSlice> ReadSamples(int users, const SliceLimits& limits);
  static constexpr std::uint64_t kSampleBytesMax = 4 * kMiB;

  // The position of the field that ReadSamples() and Fetch() read.
  [[nodiscard]] std::size_t field() const { return field_; }

  // Reads that field of up to `count` samples, spread over the dataset, until `bytes_max` is
  // reached.
  //
  // Errors: those of reading; Cancelled
  Result<std::vector<FetchedSample>> Fetch(std::uint64_t count, std::uint64_t bytes_max,
                                           const std::function<bool()>& keep_going);

 private:
  class Reads;
  class Places;

  StorageProbe(std::shared_ptr<const Index> index, OpenedStore store, std::size_t field);
  Status LookAtObjects();
  Result<StorageSlice> Measure(Places& places, int users, const SliceLimits& limits);

  const std::shared_ptr<const Index> index_;
  OpenedStore store_;
  const std::size_t field_;  // the field that is read
  bool reads_ranges_ = false;
  std::uint64_t object_bytes_max_ = 0;
  std::vector<std::uint64_t> object_bytes_;  // by object; empty if whole files are read
  // By size of read; 0: samples. Each slice continues where the previous one ended.
  std::map<std::uint64_t, std::unique_ptr<Places>> places_;
  std::vector<ProbeBuffer> buffers_;
};

}  // namespace headrace
