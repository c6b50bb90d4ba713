#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/memory/buffer_pool.h"
#include "headrace/status.h"

namespace headrace {

// What is measured at once.
struct Load {
  std::uint64_t block_bytes = 0;
  int depth = 0;  // reads in flight of each thread; 0: each thread does one thing at a time
  int threads = 1;
};

// One measurement.
struct Reading {
  double bytes_per_second = 0;       // of all threads together
  double operations_per_second = 0;  // blocks
  double cpu_us_per_operation = 0;   // of this process, the kernel's part included
  std::uint64_t operations = 0;      // of all threads, those not counted in the rates included
};

// What one thread did, in the time that counts.
struct Tally {
  std::uint64_t operations = 0;
  std::uint64_t operations_all = 0;  // with those before and after
  std::int64_t elapsed_ns = 0;
};

// Runs `thread_main(i)` on `load.threads` threads and adds the rates that they return, so that a
// thread that ends late does not lower the rate of the others.
//
// Errors: the first of `thread_main`
Result<Reading> MeasureThreads(const Load& load,
                               const std::function<Result<Tally>(int thread)>& thread_main);

// Repeats `step`, which does `operations` operations, for about so long; the first time does not
// count.
//
// Errors: the first of `step`
Result<Tally> RepeatFor(std::int64_t duration_ns, std::uint64_t operations,
                        const std::function<Status()>& step);

// Memory as the engine has it for what it reads: out of a BufferPool, in huge pages if the system
// has any; or, to compare, in pages of 4 KiB, as most programs have it. Its pages are in memory.
class BlockMemory {
 public:
  enum class Pages : std::uint8_t { kEngine, kSmall };

  // Errors: ResourceExhausted  no memory
  static Result<BlockMemory> Make(std::uint64_t bytes, Pages pages);
  ~BlockMemory();
  BlockMemory(BlockMemory&& other) noexcept;
  BlockMemory& operator=(BlockMemory&&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  BlockMemory() = default;

  Buffer buffer_;
  bool mapped_ = false;  // bytes_ is a mapping of its own
  std::span<std::byte> bytes_;
};

}  // namespace headrace
