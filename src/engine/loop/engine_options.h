#pragma once

#include <cstdint>
#include <memory>

#include "base/units.h"
#include "fetch/coalesce.h"
#include "headrace/part_options.h"
#include "store/byte_store.h"

namespace headrace {

class LeftOut;

struct EngineOptions {
  std::uint32_t batches_max = 8;  // batches in work or ready
  std::uint32_t reads_in_flight_max = StoreNeeds().sample_reads_min;
  // Extents of a step this near are one read, up to this size.
  std::uint64_t coalesce_gap_bytes = StoreNeeds().row_gap_bytes;
  std::uint64_t coalesce_bytes_max = StoreNeeds().row_read_bytes_max;
  // The same two for the samples of a block read.
  std::uint64_t block_gap_bytes = StoreNeeds().block_gap_bytes;
  std::uint64_t block_read_bytes_max = StoreNeeds().block_read_bytes_max;
  std::uint64_t read_growth_max = StoreNeeds().read_growth_max;  // of both
  std::uint64_t decode_task_bytes = 64 * kKiB;  // stored bytes from which a task is worth a thread
  OnError on_error = OnError::kRaise;
  std::uint32_t substitutes_max = 128;  // draws before a sample is given up after all
  bool verify = true;                   // samples against their checksums, where the index has them
  std::uint64_t seed = 0;               // of transforms and substitutes
  // Of rows, under way to tiers on disk. A disk with more ahead of it is slower than storage: what
  // comes then is not inserted this time, so that no batch waits longer for it.
  std::uint32_t tier_inserts_max = 256;
  std::shared_ptr<const LeftOut> left_out = nullptr;  // samples that do not stand in; null: all do

  [[nodiscard]] CoalesceLimits row_limits() const {
    return {.gap_bytes = coalesce_gap_bytes,
            .bytes_max = coalesce_bytes_max,
            .growth_max = read_growth_max};
  }
  [[nodiscard]] CoalesceLimits block_limits() const {
    return {.gap_bytes = block_gap_bytes,
            .bytes_max = block_read_bytes_max,
            .growth_max = read_growth_max};
  }
};

}  // namespace headrace
