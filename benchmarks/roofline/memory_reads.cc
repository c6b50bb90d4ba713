#include "memory_reads.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "base/testing/test_executor.h"
#include "base/units.h"
#include "store/file_io.h"

namespace headrace {
namespace {

constexpr std::uint64_t kStagingBytes = 256 * kMiB;
// Rows of a thread: a batch, but no more than this.
constexpr std::uint64_t kBatchRows = 256;
constexpr std::uint64_t kRowBytesMax = 64 * kMiB;

// Between two looks at the clock.
constexpr std::uint64_t kStepBytes = 256 * kKiB;

constexpr std::size_t kPageBytes = 4096;

std::uint64_t StepBlocks(const Load& load) {
  return std::max<std::uint64_t>(kStepBytes / load.block_bytes, 1);
}

// Makes the compiler compute what nobody uses.
void Use(std::uint64_t value) {
  static std::atomic<std::uint64_t> used;
  used.store(value, std::memory_order_relaxed);
}

Result<std::unique_ptr<Executor>> StartThreads(int threads, const std::string& /*name*/) {
  return std::unique_ptr<Executor>(std::make_unique<TestExecutor>(threads));
}

// Reads a byte of `object`: the store keeps the file open.
Status Touch(ByteStore& store, ObjectId object, std::span<std::byte> buffer) {
  Mutex mutex;
  CondVar answered;
  std::optional<Status> answer;
  std::vector<ReadRequest> requests;
  requests.push_back({.extent = {object, {0, 1}},
                      .buffer = buffer,
                      .done = [&](const Result<std::span<std::byte>>& result) {
                        MutexLock lock(mutex);
                        answer = result.status();
                        answered.NotifyAll();
                      }});
  store.Read(std::move(requests), {});
  MutexLock lock(mutex);
  while (!answer.has_value()) answered.Wait(mutex);
  return *answer;
}

Status PreadNow(int fd, std::span<std::byte> target, std::uint64_t offset) {
  const iovec vector = {target.data(), target.size()};
  const ssize_t n = ::preadv2(fd, &vector, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  if (n == static_cast<ssize_t>(target.size())) return Status();
  if (n < 0) return ErrnoStatus(errno, "preadv2");
  return FailedPrecondition("preadv2: the page cache had {} of {} bytes", n, target.size());
}

}  // namespace

// The rows of a thread's batch, one after the other, round and round.
class MemoryReads::Rows {
 public:
  Rows(std::span<std::byte> bytes, std::uint64_t row_bytes) : bytes_(bytes), row_(row_bytes) {}

  std::span<std::byte> Next() {
    if (at_ + row_ > bytes_.size()) at_ = 0;
    return bytes_.subspan(std::exchange(at_, at_ + row_), row_);
  }

 private:
  const std::span<std::byte> bytes_;
  const std::uint64_t row_;
  std::uint64_t at_ = 0;
};

Result<MemoryReads> MemoryReads::Make(const ReadFiles& files, int threads,
                                      std::uint64_t block_bytes) {
  const std::uint64_t thread_bytes =
      RoundUp(std::max(std::min(kBatchRows * block_bytes, kRowBytesMax), block_bytes), kPageBytes);
  HEADRACE_ASSIGN_OR_RETURN(BlockMemory rows,
                            BlockMemory::Make(thread_bytes * static_cast<std::uint64_t>(threads),
                                              BlockMemory::Pages::kEngine));
  return MemoryReads(files, std::move(rows), thread_bytes);
}

Status MemoryReads::OpenFiles() {
  if (!mapped_.empty()) return Status();
  HEADRACE_ASSIGN_OR_RETURN(store_, OpenStoreOf({.catalog = &files_,
                                                 .scheme = std::string(kFileScheme),
                                                 .large_files = true,
                                                 .start_threads = StartThreads},
                                                kAnyStore));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::string& path = files_.info(i).path;
    HEADRACE_RETURN_IF_ERROR(Touch(*store_.store, ObjectId{i}, rows_.bytes()));
    fds_.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fds_.back()) return ErrnoStatus(errno, "open").WithContext(path);
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
    for (std::size_t at = 0; at < mapped->bytes().size(); at += kPageBytes) {
      sum += static_cast<std::uint64_t>(mapped->bytes()[at]);
    }
    mapped_.push_back(std::move(mapped));
  }
  Use(sum);
  return Status();
}

Result<Reading> MemoryReads::MeasureCache(CacheMethod method, const Load& load, Places& places,
                                          std::int64_t duration_ns) {
  HEADRACE_RETURN_IF_ERROR(files_.CheckWarm());  // First: opening reads them.
  HEADRACE_RETURN_IF_ERROR(OpenFiles());
  const auto copy_block = [&](const Place& place, std::span<std::byte> row) -> Status {
    switch (method) {
      case CacheMethod::kStore: {
        const Extent extent = {ObjectId{place.file}, {place.offset, load.block_bytes}};
        if (store_.store->ReadNow(extent, row) == ReadNowAnswer::kRead) return Status();
        return FailedPrecondition("the store does not find in the page cache what is there");
      }
      case CacheMethod::kPread:
        return PreadNow(fds_[place.file].get(), row, place.offset);
      case CacheMethod::kGather:
        std::memcpy(row.data(), mapped_[place.file]->bytes().data() + place.offset, row.size());
        return Status();
    }
    return Status();
  };
  const auto thread_main = [&](int thread) -> Result<Tally> {
    Walk walk = places.Begin(thread, load.threads, /*once=*/false);
    Rows rows(
        rows_.bytes().subspan(static_cast<std::size_t>(thread) * thread_bytes_, thread_bytes_),
        load.block_bytes);
    const std::uint64_t blocks = StepBlocks(load);
    return RepeatFor(duration_ns, blocks, [&]() -> Status {
      for (std::uint64_t i = 0; i < blocks; ++i) {
        const std::optional<Place> place = walk.Next();
        if (!place.has_value()) return FailedPrecondition("the files have no whole block");
        HEADRACE_RETURN_IF_ERROR(copy_block(*place, rows.Next()));
      }
      return Status();
    });
  };
  Result<Reading> reading = MeasureThreads(load, thread_main);
  if (reading.ok()) {
    places.Skip(reading.value().operations / static_cast<std::uint64_t>(load.threads));
  }
  return reading;
}

Result<Reading> MemoryReads::MeasureCopy(CopyMethod method, const Load& load, std::uint64_t seed,
                                         std::int64_t duration_ns) {
  if (!staging_.has_value()) {
    HEADRACE_ASSIGN_OR_RETURN(BlockMemory staging,
                              BlockMemory::Make(kStagingBytes, BlockMemory::Pages::kEngine));
    staging_.emplace(std::move(staging));
  }
  const std::span<const std::byte> staging = staging_->bytes();
  const std::uint64_t count = staging.size() / load.block_bytes;
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  Prng prng(seed, 0, RandomStream::kOrder, load.block_bytes);
  for (std::uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[prng.Below(i)]);
  const auto thread_main = [&](int thread) -> Result<Tally> {
    const auto number = static_cast<std::uint64_t>(thread);
    std::uint64_t next = count * number / static_cast<std::uint64_t>(load.threads);
    Rows rows(rows_.bytes().subspan(number * thread_bytes_, thread_bytes_), load.block_bytes);
    const std::uint64_t blocks = StepBlocks(load);
    return RepeatFor(duration_ns, blocks, [&]() -> Status {
      for (std::uint64_t i = 0; i < blocks; ++i) {
        std::span<const std::byte> block =
            staging.subspan(order[next] * load.block_bytes, load.block_bytes);
        if (++next == count) next = 0;
        if (method != CopyMethod::kChecksum) {
          const std::span<std::byte> row = rows.Next();
          std::memcpy(row.data(), block.data(), block.size());
          block = row;
        }
        if (method != CopyMethod::kCopy) Use(Hash64(block));
      }
      return Status();
    });
  };
  return MeasureThreads(load, thread_main);
}

}  // namespace headrace
