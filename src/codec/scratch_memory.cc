#include "codec/scratch_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace headrace {
namespace {

constexpr std::size_t kAlignment = 64;

// Stored before each block.
struct alignas(kAlignment) Header {
  std::size_t bytes = 0;  // as requested
};

const Header* HeaderOf(const void* memory) { return static_cast<const Header*>(memory) - 1; }

}  // namespace

ScratchUse& ThreadScratchUse() {
  thread_local ScratchUse use;
  return use;
}

void* AllocateScratch(std::size_t bytes) noexcept {
  if (bytes > PTRDIFF_MAX - 2 * kAlignment) return nullptr;
  const std::size_t all = (bytes + sizeof(Header) + kAlignment - 1) / kAlignment * kAlignment;
  void* block = nullptr;
  if (bytes >= kSystemBlockBytes) {
    block = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return nullptr;
  } else {
    block = std::aligned_alloc(kAlignment, all);
    if (block == nullptr) return nullptr;
  }
  void* const memory = new (block) Header{.bytes = bytes} + 1;
  ScratchUse& use = ThreadScratchUse();
  use.bytes += bytes;
  use.bytes_peak = std::max(use.bytes_peak, use.bytes);
  if (use.fill.has_value()) std::memset(memory, std::to_integer<int>(*use.fill), bytes);
  return memory;
}

void FreeScratch(void* memory) noexcept {
  if (memory == nullptr) return;
  Header* header = static_cast<Header*>(memory) - 1;
  const std::size_t bytes = header->bytes;
  ThreadScratchUse().bytes -= bytes;
  if (bytes >= kSystemBlockBytes) {
    munmap(header, (bytes + sizeof(Header) + kAlignment - 1) / kAlignment * kAlignment);
  } else {
    std::free(header);  // NOLINT(cppcoreguidelines-no-malloc): aligned_alloc()'s
  }
}

std::size_t ScratchBlockBytes(const void* memory) noexcept { return HeaderOf(memory)->bytes; }

bool IsScratchZeroed(std::size_t bytes) noexcept {
  return bytes >= kSystemBlockBytes && !ThreadScratchUse().fill.has_value();
}

}  // namespace headrace
