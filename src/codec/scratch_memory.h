#pragma once

// Scratch memory: memory that a decode allocates and frees, in addition to its input and its row.
// Large blocks are mapped and unmapped directly: malloc() would keep up to 32 MiB of freed memory
// per thread, which no budget counts.

#include <cstddef>
#include <new>
#include <optional>

namespace headrace {

// Blocks of at least this size are mapped from the system; smaller ones come from malloc().
inline constexpr std::size_t kSystemBlockBytes = std::size_t{256} << 10;

// Scratch memory of one thread: current bytes and their maximum. Each thread has its own.
struct ScratchUse {
  std::size_t bytes = 0;
  std::size_t bytes_peak = 0;
  std::optional<std::byte> fill;  // what new blocks hold, for tests; none: anything
};
ScratchUse& ThreadScratchUse();

// Aligned to 64 bytes, not initialised; null if there is no memory. Free it on the thread that
// allocated it: ScratchUse counts per thread.
void* AllocateScratch(std::size_t bytes) noexcept;
// `memory` may be null.
void FreeScratch(void* memory) noexcept;
// The `bytes` that AllocateScratch() received for this block.
std::size_t ScratchBlockBytes(const void* memory) noexcept;

// Whether a new block of so many bytes holds zeros.
bool IsScratchZeroed(std::size_t bytes) noexcept;

// For unique_ptr.
struct FreesScratch {
  void operator()(void* memory) const { FreeScratch(memory); }
};

// For containers.
template <typename T>
struct ScratchAllocator {
  using value_type = T;

  ScratchAllocator() = default;
  template <typename U>
  explicit ScratchAllocator(const ScratchAllocator<U>& /*other*/) {}

  T* allocate(std::size_t count) {
    void* memory = AllocateScratch(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t /*count*/) { FreeScratch(memory); }

  friend bool operator==(const ScratchAllocator&, const ScratchAllocator&) { return true; }
};

}  // namespace headrace
