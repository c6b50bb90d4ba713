#pragma once

#include <cstdint>
#include <memory>

#include "base/units.h"
#include "headrace/part_options.h"

namespace headrace {

class LeftOut;

struct EngineOptions {
  std::uint32_t batches_max = 8;  // batches in work or ready
  std::uint32_t reads_in_flight_max = 64;
  std::uint64_t coalesce_gap_bytes = 16 * kKiB;  // extents of a step this near are one read ...
  std::uint64_t coalesce_bytes_max = kMiB;       // ... up to this size
  std::uint64_t block_gap_bytes = 64 * kKiB;     // the same two for the samples of a block read
  std::uint64_t block_read_bytes_max = 4 * kMiB;
  std::uint64_t decode_task_bytes = 64 * kKiB;  // stored bytes from which a task is worth a thread
  OnError on_error = OnError::kRaise;
  std::uint32_t substitutes_max = 128;  // draws before a sample is given up after all
  bool verify = true;                   // samples against their checksums, where the index has them
  std::uint64_t seed = 0;               // of transforms and substitutes
  std::shared_ptr<const LeftOut> left_out = nullptr;  // samples that do not stand in; null: all do
};

}  // namespace headrace
