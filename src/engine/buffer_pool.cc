#include "engine/buffer_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFineMax = 32 * kKiB;  // Up to here a class for every number of pages.

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
    beyond_ = other.beyond_;
  }
  return *this;
}

void Buffer::Reset() {
  if (pool_ == nullptr) return;
  const std::shared_ptr<BufferPool> pool = std::exchange(pool_, nullptr);
  pool->Release(std::exchange(bytes_, {}), beyond_);
}

std::shared_ptr<BufferPool> BufferPool::Make(std::uint64_t capacity_bytes) {
  return std::shared_ptr<BufferPool>(new BufferPool(capacity_bytes));
}

BufferPool::BufferPool(std::uint64_t capacity_bytes) : pid_(getpid()) {
  stats_.capacity_bytes = capacity_bytes;
  MutexLock lock(mutex_);
  arena_.emplace(capacity_bytes);
}

BufferPool::~BufferPool() {
  if (getpid() != pid_) return;
  MutexLock lock(mutex_);
  HEADRACE_CHECK(stats_.used_bytes == 0 && stats_.beyond_bytes == 0);
}

std::uint64_t BufferPool::ChargedBytes(std::uint64_t bytes) {
  if (bytes <= kFineMax) return std::max(kPage, RoundUp(bytes, kPage));
  return RoundUp(bytes, std::bit_floor(bytes) / 8);
}

std::optional<Buffer> BufferPool::Acquire(std::uint64_t bytes) {
  const std::uint64_t charged = ChargedBytes(bytes);
  MutexLock lock(mutex_);
  if (charged > stats_.capacity_bytes - stats_.used_bytes) return std::nullopt;
  std::byte* memory = arena_->Take(charged, stats_.used_bytes);
  if (memory == nullptr) memory = Map(charged);
  if (memory == nullptr) return std::nullopt;
  stats_.used_bytes += charged;
  stats_.used_bytes_peak = std::max(stats_.used_bytes_peak, stats_.used_bytes);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.bytes_ = {memory, charged};
  return buffer;
}

std::optional<Buffer> BufferPool::AcquireBeyond(std::uint64_t bytes) {
  const std::uint64_t charged = RoundUp(std::max(bytes, std::uint64_t{1}), kPage);
  std::byte* const memory = Map(charged);
  if (memory == nullptr) return std::nullopt;
  MutexLock lock(mutex_);
  stats_.beyond_bytes += charged;
  stats_.beyond_bytes_peak = std::max(stats_.beyond_bytes_peak, stats_.beyond_bytes);
  ++stats_.beyond_count;
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.bytes_ = {memory, charged};
  buffer.beyond_ = true;
  return buffer;
}

void BufferPool::SetReleaseHook(std::function<void()> hook) {
  MutexLock lock(hook_mutex_);
  hook_ = std::move(hook);
}

BufferPool::Stats BufferPool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

void BufferPool::Release(std::span<std::byte> bytes, bool beyond) {
  if (getpid() != pid_) return;  // A thread of the parent may hold the locks, for ever.
  {
    MutexLock lock(mutex_);
    if (beyond) {
      stats_.beyond_bytes -= bytes.size();
      Unmap(bytes.data(), bytes.size());
    } else {
      stats_.used_bytes -= bytes.size();
      if (arena_->Owns(bytes.data())) {
        arena_->GiveBack(bytes.data(), bytes.size());
      } else {
        Unmap(bytes.data(), bytes.size());
      }
    }
  }
  MutexLock lock(hook_mutex_);
  if (hook_) hook_();
}

}  // namespace headrace
