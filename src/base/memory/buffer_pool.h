#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/memory/arena.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

class BufferPool;

// Where a buffer lies in memory that other processes can map.
struct BufferPlace {
  std::shared_ptr<SharedMemory> memory;  // null: in memory of this process
  std::uint64_t offset = 0;
};

// Memory out of a BufferPool, which it keeps alive; goes back when destroyed, on any thread.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { Reset(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;

  // Aligned to a page; at least the bytes asked for. Empty if there is no memory.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // Most buffers of a pool lie in one memory, so who maps it once has mapped them all.
  [[nodiscard]] const BufferPlace& place() const { return place_; }
  void Reset();

 private:
  friend class BufferPool;
  std::shared_ptr<BufferPool> pool_;
  std::span<std::byte> bytes_;
  BufferPlace place_;
  bool beyond_ = false;  // not part of the budget
};

// A byte budget and the memory it is for. Sizes are rounded up to classes (whole pages; an eighth
// of a power of two above 32 KiB, so at most 12.5 % is lost), so that what one buffer leaves often
// fits the next, and the rounded bytes are what is charged: memory in use and memory retained for
// the next user together never pass the capacity.
//
// Thread safety: every method may be called from any thread.
// Fork: a child leaves the memory as it is; its pages are the child's own until it ends. Those of a
// shared pool are not: a child that reads a buffer sees what the parent has it for by now.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  static std::shared_ptr<BufferPool> Make(std::uint64_t capacity_bytes);
  // The same of memory that other processes can map, see Buffer::place().
  //
  // Errors: those of SharedMemory::Make()
  static Result<std::shared_ptr<BufferPool>> MakeShared(std::uint64_t capacity_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // What a buffer of `bytes` is charged.
  static std::uint64_t ChargedBytes(std::uint64_t bytes);

  // Memory for `bytes`, or nothing while the budget has no room (or the system no memory).
  std::optional<Buffer> Acquire(std::uint64_t bytes);
  // The same, for who can wait: nothing, too, while much of the pool is in use and free buffers of
  // other sizes would have to return their pages to the system. To take one that comes back is
  // cheaper than new pages.
  std::optional<Buffer> AcquireReady(std::uint64_t bytes);

  // Memory outside the budget, counted. Nothing if the system has none.
  std::optional<Buffer> AcquireBeyond(std::uint64_t bytes);

  // `hook` runs after every release, on the releasing thread; none after SetReleaseHook(nullptr)
  // has returned. At most one.
  void SetReleaseHook(std::function<void()> hook);

  // Returns memory that no buffer uses to the system.
  void ReturnFreePages();
  // No buffer is taken from now on, nor is memory sent to other processes: free pages return to the
  // system, those of buffers as they come back, and the descriptor closes that buffers share.
  void Retire();

  [[nodiscard]] BufferStats stats() const;
  // Whether any buffer exists, within the budget or beyond it. If not, a wait for memory of the
  // pool would never end.
  [[nodiscard]] bool in_use() const;

  // All memory that buffers inside the budget are cut from, touched or not.
  [[nodiscard]] std::span<std::byte> mapping() const;

 private:
  friend class Buffer;
  BufferPool(std::uint64_t capacity_bytes, bool shared, std::shared_ptr<SharedMemory> memory);
  std::optional<Buffer> AcquireCharged(std::uint64_t charged) HEADRACE_LOCKS_REQUIRED(mutex_);
  std::optional<Buffer> Charge(std::byte* memory, std::uint64_t charged)
      HEADRACE_LOCKS_REQUIRED(mutex_);
  // Memory outside the arena, and its place; null if the system has none.
  std::pair<std::byte*, BufferPlace> MapDedicated(std::uint64_t bytes) const;
  void Release(std::span<std::byte> bytes, bool beyond, BufferPlace place);

  const bool shared_;
  const pid_t pid_;  // of the process whose threads use the locks below

  mutable Mutex mutex_;
  BufferStats stats_ HEADRACE_GUARDED_BY(mutex_);
  std::optional<Arena> arena_ HEADRACE_GUARDED_BY(mutex_);
  bool retired_ HEADRACE_GUARDED_BY(mutex_) = false;

  Mutex hook_mutex_;  // Held while the hook runs: SetReleaseHook() waits for it.
  std::function<void()> hook_ HEADRACE_GUARDED_BY(hook_mutex_);
};

}  // namespace headrace
