#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/buffer_pool.h"

namespace headrace {

// What a consumer that had to wait for a batch was waiting for.
enum class StallCause : std::uint8_t {
  kStorage = 0,   // bytes of the batch were not read yet
  kDecode = 1,    // they were, and not decoded yet
  kConsumer = 2,  // the consumer itself held the memory to read ahead into
};
inline constexpr std::size_t kStallCauses = 3;

// A corrupt sample and what was delivered in its place.
struct Substitution {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::uint32_t slot = 0;
  SampleId wanted{};
  SampleId given{};
  std::string reason;
};

// What an engine did so far. Times in nanoseconds, sizes in bytes; all but the gauges monotonic.
struct EngineStats {
  std::uint64_t batches = 0;       // handed over
  std::uint64_t samples = 0;       // in those
  std::uint64_t reads = 0;         // issued to the store
  std::uint64_t read_bytes = 0;    // of those, as asked for: gaps between coalesced extents too
  std::uint64_t sample_bytes = 0;  // stored bytes of the samples decoded
  std::int64_t decode_ns = 0;      // in decode tasks, summed over threads
  std::array<std::int64_t, kStallCauses> stall_ns{};  // by StallCause
  std::uint64_t substituted = 0;                      // samples replaced
  std::vector<Substitution> substitutions;            // the first kSubstitutionsListed of them
  std::uint64_t reads_in_flight = 0;                  // gauge
  std::uint64_t steps_in_work = 0;                    // gauge
  BufferPool::Stats staging;                          // bytes read and not decoded yet
  BufferPool::Stats batch;  // batches in work, ready and held by the consumer
};
inline constexpr std::size_t kSubstitutionsListed = 10000;

}  // namespace headrace
