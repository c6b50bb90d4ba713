#include "base/memory/buffer_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/process_id.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPoolPage = 4096;
constexpr std::string_view kSharedName = "headrace-batches";
constexpr std::uint64_t kFineMax = 32 * kKiB;  // Up to here a class for every number of pages.

// With so many times the bytes of a buffer in use, one will soon come back.
constexpr std::uint64_t kManyBuffers = 4;

std::byte* Map(std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void Unmap(std::byte* memory, std::uint64_t bytes) { HEADRACE_CHECK(munmap(memory, bytes) == 0); }

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    place_ = std::exchange(other.place_, {});
    beyond_ = other.beyond_;
  }
  return *this;
}

void Buffer::Reset() {
  if (pool_ == nullptr) return;
  const std::shared_ptr<BufferPool> pool = std::exchange(pool_, nullptr);
  pool->Release(std::exchange(bytes_, {}), beyond_, std::exchange(place_, {}));
}

BufferStats& BufferStats::operator+=(const BufferStats& other) {
  capacity_bytes += other.capacity_bytes;
  used_bytes += other.used_bytes;
  used_bytes_peak += other.used_bytes_peak;
  beyond_bytes += other.beyond_bytes;
  beyond_bytes_peak += other.beyond_bytes_peak;
  beyond_count += other.beyond_count;
  return *this;
}

std::shared_ptr<BufferPool> BufferPool::Make(std::uint64_t capacity_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(capacity_bytes, /*shared=*/false, nullptr));
}

Result<std::shared_ptr<BufferPool>> BufferPool::MakeShared(std::uint64_t capacity_bytes) {
  std::shared_ptr<SharedMemory> memory;
  if (const std::uint64_t bytes = Arena::MappedBytes(capacity_bytes); bytes > 0) {
    HEADRACE_ASSIGN_OR_RETURN(memory, SharedMemory::Make(kSharedName, bytes));
  }
  return std::shared_ptr<BufferPool>(
      new BufferPool(capacity_bytes, /*shared=*/true, std::move(memory)));
}

BufferPool::BufferPool(std::uint64_t capacity_bytes, bool shared,
                       std::shared_ptr<SharedMemory> memory)
    : shared_(shared), pid_(ProcessId()) {
  stats_.capacity_bytes = capacity_bytes;
  MutexLock lock(mutex_);
  if (shared) {
    arena_.emplace(capacity_bytes, std::move(memory));
  } else {
    arena_.emplace(capacity_bytes);
  }
}

BufferPool::~BufferPool() {
  if (ProcessId() != pid_) return;
  MutexLock lock(mutex_);
  HEADRACE_CHECK(stats_.used_bytes == 0 && stats_.beyond_bytes == 0);
}

std::uint64_t BufferPool::ChargedBytes(std::uint64_t bytes) {
  if (bytes <= kFineMax) return std::max(kPoolPage, RoundUp(bytes, kPoolPage));
  return RoundUp(bytes, std::bit_floor(bytes) / 8);
}

std::optional<Buffer> BufferPool::Acquire(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  return AcquireCharged(ChargedBytes(bytes));
}

std::optional<Buffer> BufferPool::AcquireReady(std::uint64_t bytes) {
  const std::uint64_t charged = ChargedBytes(bytes);
  MutexLock lock(mutex_);
  const std::uint64_t used = stats_.used_bytes;
  if (charged > stats_.capacity_bytes - used) return std::nullopt;
  const bool much_in_use = used > stats_.capacity_bytes / 2 && used / charged >= kManyBuffers;
  if (!much_in_use) return AcquireCharged(charged);
  const std::optional<std::byte*> memory = arena_->TakeReady(charged, used);
  return memory.has_value() ? Charge(*memory, charged) : std::nullopt;
}

std::optional<Buffer> BufferPool::AcquireCharged(std::uint64_t charged) {
  if (charged > stats_.capacity_bytes - stats_.used_bytes) return std::nullopt;
  return Charge(arena_->Take(charged, stats_.used_bytes), charged);
}

// `memory`: of the arena; null: it has no place.
std::optional<Buffer> BufferPool::Charge(std::byte* memory, std::uint64_t charged) {
  BufferPlace place;
  if (memory != nullptr) {
    if (shared_) place = {arena_->memory(), arena_->OffsetOf(memory)};
  } else {
    std::tie(memory, place) = MapDedicated(charged);
  }
  if (memory == nullptr) return std::nullopt;
  stats_.used_bytes += charged;
  stats_.used_bytes_peak = std::max(stats_.used_bytes_peak, stats_.used_bytes);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.bytes_ = {memory, charged};
  buffer.place_ = std::move(place);
  return buffer;
}

std::optional<Buffer> BufferPool::AcquireBeyond(std::uint64_t bytes) {
  const std::uint64_t charged = RoundUp(std::max(bytes, std::uint64_t{1}), kPoolPage);
  auto [memory, place] = MapDedicated(charged);
  if (memory == nullptr) return std::nullopt;
  MutexLock lock(mutex_);
  stats_.beyond_bytes += charged;
  stats_.beyond_bytes_peak = std::max(stats_.beyond_bytes_peak, stats_.beyond_bytes);
  ++stats_.beyond_count;
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.bytes_ = {memory, charged};
  buffer.place_ = std::move(place);
  buffer.beyond_ = true;
  return buffer;
}

void BufferPool::SetReleaseHook(std::function<void()> hook) {
  MutexLock lock(hook_mutex_);
  hook_ = std::move(hook);
}

void BufferPool::ReturnFreePages() {
  MutexLock lock(mutex_);
  arena_->ReturnFreePages();
}

void BufferPool::Retire() {
  MutexLock lock(mutex_);
  retired_ = true;
  arena_->ReturnFreePages();
  if (arena_->memory() != nullptr) arena_->memory()->CloseDescriptor();
}

std::span<std::byte> BufferPool::mapping() const {
  MutexLock lock(mutex_);
  return arena_->mapping();
}

BufferStats BufferPool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

bool BufferPool::in_use() const {
  MutexLock lock(mutex_);
  return stats_.used_bytes > 0 || stats_.beyond_bytes > 0;
}

std::pair<std::byte*, BufferPlace> BufferPool::MapDedicated(std::uint64_t bytes) const {
  if (!shared_) return {Map(bytes), BufferPlace{}};
  auto memory = SharedMemory::Make(kSharedName, bytes);
  if (!memory.ok()) return {nullptr, BufferPlace{}};
  std::byte* const data = memory.value()->bytes().data();
  return {data, BufferPlace{std::move(memory).value(), 0}};
}

void BufferPool::Release(std::span<std::byte> bytes, bool beyond, BufferPlace place) {
  if (ProcessId() != pid_) return;  // A thread of the parent may hold the locks, for ever.
  {
    MutexLock lock(mutex_);
    (beyond ? stats_.beyond_bytes : stats_.used_bytes) -= bytes.size();
    if (!beyond && arena_->Owns(bytes.data())) {
      arena_->GiveBack(bytes.data(), bytes.size());
      if (retired_) arena_->ReturnFreePages();
    } else if (!shared_) {
      Unmap(bytes.data(), bytes.size());
    }
    place.memory.reset();  // Dedicated memory is gone before its bytes are asked for again.
  }
  MutexLock lock(hook_mutex_);
  if (hook_) hook_();
}

}  // namespace headrace
