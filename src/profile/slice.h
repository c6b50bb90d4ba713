#pragma once

// profile/ measures a machine: storage as the engine reads it, memory, decoding, folders that may
// be tiers. Each call measures one short *slice* at one point (a size, a depth, a number of
// threads). The caller (`headrace profile`) decides how many slices, in which order, and what they
// mean.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/units.h"
#include "headrace/status.h"
#include "store/byte_store.h"

namespace headrace {

struct SliceLimits {
  std::int64_t duration_ns = 150'000'000;  // time measured, after a start that is not counted
  // A slower slice ends after this time, with the operations counted so far.
  std::int64_t duration_max_ns = 5'000'000'000;
  // Called about every 50 ms, on the calling thread; false ends the slice. Empty: always true.
  std::function<bool()> keep_going = {};
};

// One measurement.
struct Slice {
  double rate = 0;               // bytes a second of all users together
  double operations_rate = 0;    // reads, writes, samples a second
  std::uint64_t operations = 0;  // in the time measured
  std::uint64_t bytes = 0;
};

// The bytes of one operation, and how many users run operations at once: threads, or reads in
// flight.
struct Load {
  std::uint64_t bytes = 0;
  int users = 1;
};

// The error of a slice that `keep_going` ended.
inline Status StoppedMeasuring() { return {StatusCode::kCancelled, "measuring: stopped"}; }

// How often `keep_going` is called.
inline constexpr std::int64_t kAskEveryNs = 50'000'000;

// Memory for reads: aligned to kBufferAlignment. Its size only grows.
class ProbeBuffer {
 public:
  // Returns at least `bytes` bytes; empty if the system has no memory.
  std::span<std::byte> AtLeast(std::size_t bytes) {
    const std::size_t rounded = RoundUp(bytes, kBufferAlignment);
    if (rounded > bytes_) {
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, rounded)));
      bytes_ = memory_ == nullptr ? 0 : rounded;
    }
    return {memory_.get(), bytes_};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

// One operation of a thread: the bytes it moved. `round` counts its operations from 0.
using ProbeOperation = std::function<Result<std::uint64_t>(int thread, std::uint64_t round)>;

// Runs `operation` repeatedly on `threads` threads; the first operation of each thread is not
// counted. The rate is the sum of the threads' rates, so a thread that ends late does not lower it.
//
// Errors: the first error of `operation`
//         Cancelled          keep_going returned false
//         ResourceExhausted  no threads
Result<Slice> MeasureThreads(int threads, const SliceLimits& limits,
                             const ProbeOperation& operation);

}  // namespace headrace
