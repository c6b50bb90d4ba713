#include "reading.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// A pool of at least this size is in huge pages.
constexpr std::uint64_t kPoolBytesMin = 16 * kMiB;

double CpuMicros() {
  rusage usage{};
  HEADRACE_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  const auto micros = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return micros(usage.ru_utime) + micros(usage.ru_stime);
}

}  // namespace

Result<Reading> MeasureThreads(const Load& load,
                               const std::function<Result<Tally>(int thread)>& thread_main) {
  std::vector<std::optional<Result<Tally>>> tallies(static_cast<std::size_t>(load.threads));
  const double cpu_before = CpuMicros();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < load.threads; ++i) {
      threads.emplace_back([&, i] { tallies[static_cast<std::size_t>(i)] = thread_main(i); });
    }
  }
  const double cpu_micros = CpuMicros() - cpu_before;
  Reading reading;
  for (const std::optional<Result<Tally>>& tally : tallies) {
    HEADRACE_RETURN_IF_ERROR(tally->status());
    const Tally& one = tally->value();
    if (one.operations == 0) {
      return FailedPrecondition(
          "reading blocks of {}: the files have too few of them for this depth",
          FormatBytes(load.block_bytes));
    }
    const double rate =
        static_cast<double>(one.operations) * 1e9 / static_cast<double>(one.elapsed_ns);
    reading.operations_per_second += rate;
    reading.bytes_per_second += rate * static_cast<double>(load.block_bytes);
    reading.operations += one.operations_all;
  }
  reading.cpu_us_per_operation = cpu_micros / static_cast<double>(reading.operations);
  return reading;
}

Result<Tally> RepeatFor(std::int64_t duration_ns, std::uint64_t operations,
                        const std::function<Status()>& step) {
  HEADRACE_RETURN_IF_ERROR(step());
  const MonotonicClock clock;
  const std::int64_t begin_ns = clock.NowNanos();
  Tally tally{.operations_all = operations};
  while (tally.elapsed_ns < duration_ns) {
    HEADRACE_RETURN_IF_ERROR(step());
    tally.operations += operations;
    tally.elapsed_ns = std::max<std::int64_t>(clock.NowNanos() - begin_ns, 1);
  }
  tally.operations_all += tally.operations;
  return tally;
}

Result<BlockMemory> BlockMemory::Make(std::uint64_t bytes, Pages pages) {
  BlockMemory memory;
  if (pages == Pages::kEngine) {
    const auto pool = BufferPool::Make(std::max(BufferPool::ChargedBytes(bytes), kPoolBytesMin));
    std::optional<Buffer> buffer = pool->Acquire(bytes);
    if (!buffer.has_value()) return ResourceExhausted("no memory for {}", FormatBytes(bytes));
    memory.buffer_ = std::move(*buffer);
    memory.bytes_ = memory.buffer_.bytes().first(bytes);
  } else {
    void* const mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return ResourceExhausted("no memory for {}", FormatBytes(bytes));
    memory.mapped_ = true;
    memory.bytes_ = {static_cast<std::byte*>(mapped), bytes};
    (void)::madvise(mapped, bytes, MADV_NOHUGEPAGE);  // Fails if the kernel has no huge pages.
  }
  std::memset(memory.bytes_.data(), 1, bytes);
  return memory;
}

BlockMemory::BlockMemory(BlockMemory&& other) noexcept
    : buffer_(std::move(other.buffer_)),
      mapped_(std::exchange(other.mapped_, false)),
      bytes_(std::exchange(other.bytes_, {})) {}

BlockMemory::~BlockMemory() {
  if (mapped_) HEADRACE_CHECK(::munmap(bytes_.data(), bytes_.size()) == 0);
}

}  // namespace headrace
