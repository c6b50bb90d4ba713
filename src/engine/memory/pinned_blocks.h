#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "headrace/ids.h"

namespace headrace {

// Stored bytes that stay in memory as they were read: the first ones, until a budget is full.
// Nothing is ever replaced (CoorDL's MinIO cache): if every byte is used once an epoch, any
// replacement would keep bytes that are used later than the bytes that it evicts.
//
// Thread safety: every method may be called from any thread.
// Ownership: what Find() returns lives as long as the pool.
class PinnedBlocks {
 public:
  // One read: what was asked for, the memory it went to, and where in it the bytes lie.
  struct Part {
    Extent extent;
    Buffer buffer;  // out of Acquire()
    std::span<const std::byte> data;
  };

  explicit PinnedBlocks(std::uint64_t capacity_bytes) : memory_(BufferPool::Make(capacity_bytes)) {}

  // Memory for a read of `bytes` whose block is to be pinned; nothing when the budget is full.
  std::optional<Buffer> Acquire(std::uint64_t bytes) { return memory_->Acquire(bytes); }

  void Add(std::vector<Part>&& parts);

  // The bytes of `extent`, if one part has all of them. `extent` is not empty.
  [[nodiscard]] std::optional<std::span<const std::byte>> Find(const Extent& extent) const;

  [[nodiscard]] BufferStats stats() const { return memory_->stats(); }

 private:
  const std::shared_ptr<BufferPool> memory_;
  mutable Mutex mutex_;
  // By object and offset.
  std::map<std::pair<ObjectId, std::uint64_t>, Part> parts_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
