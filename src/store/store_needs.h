#pragma once

#include <cstdint>

#include "base/units.h"

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
  // It repeats reads that are Unavailable, as far as that helps.
  bool retries_itself = false;
};

// Of object stores. A request takes about the time in which 1 MiB arrives: a smaller gap is read
// faster than left out. 64 MiB in flight fill a link of 10 Gbit/s whose requests take 50 ms.
inline constexpr StoreNeeds kObjectStoreNeeds = {.row_gap_bytes = kMiB,
                                                 .row_read_bytes_max = 8 * kMiB,
                                                 .block_gap_bytes = kMiB,
                                                 .block_read_bytes_max = 8 * kMiB,
                                                 .read_growth_max = 2,
                                                 .bytes_in_flight = 64 * kMiB,
                                                 .block_reads_max = 64,
                                                 .retries_itself = true};

}  // namespace headrace
