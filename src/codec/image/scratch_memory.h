#pragma once

// Scratch memory: what a decode allocates besides its input and its row, and frees. Large blocks
// are mapped from the system and unmapped: malloc() would keep up to 32 MiB of freed memory for
// each thread, uncounted.

#include <cstddef>
#include <new>

namespace headrace {

// Blocks of this size and more are mapped from the system; smaller ones come from malloc().
inline constexpr std::size_t kSystemBlockBytes = std::size_t{256} << 10;

// Scratch memory of the calling thread, now and its maximum. Thread safety: one object per thread.
struct ScratchUse {
  std::size_t bytes = 0;
  std::size_t bytes_peak = 0;
};
ScratchUse& ThreadScratchUse();

// Aligned to 64 bytes, not initialised; null if there is no memory. Free it on the same thread, so
// that ScratchUse is correct.
void* AllocateScratch(std::size_t bytes) noexcept;
// `memory` may be null.
void FreeScratch(void* memory) noexcept;
// The size that the block was allocated with.
std::size_t ScratchBlockBytes(const void* memory) noexcept;

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
