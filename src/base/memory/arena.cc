#include "base/memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2 * kMiB;

// Room to place pieces in, in multiples of what may be filled.
constexpr std::uint64_t kRoom = 2;

// From this size on the last huge page, of which only a part may be wanted, does not matter.
constexpr std::uint64_t kHugeFrom = 8 * kMiB;

}  // namespace

std::uint64_t Arena::MappedBytes(std::uint64_t resident_max) {
  if (resident_max < kPage || resident_max > kNone / (2 * kRoom)) return 0;
  return RoundUp(resident_max / kPage * kPage * kRoom, kHugePage);
}

// A part of a page at the end of the budget cannot be used, nor can a part be returned.
Arena::Arena(std::uint64_t resident_max) : resident_max_(resident_max / kPage * kPage) {
  const std::uint64_t bytes = MappedBytes(resident_max);
  if (bytes == 0) return;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) Place(memory, bytes);
}

Arena::Arena(std::uint64_t resident_max, std::shared_ptr<SharedMemory> memory)
    : resident_max_(resident_max / kPage * kPage), memory_(std::move(memory)) {
  if (memory_ == nullptr) return;
  HEADRACE_CHECK(memory_->bytes().size() == MappedBytes(resident_max));
  Place(memory_->bytes().data(), memory_->bytes().size());
}

void Arena::Place(void* memory, std::uint64_t bytes) {
  base_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  // A wish: without it there are more page faults, once.
  if (resident_max_ >= kHugeFrom) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  empty_.Add(0, bytes);
}

Arena::~Arena() {
  if (base_ != nullptr && memory_ == nullptr) HEADRACE_CHECK(munmap(base_, mapped_bytes_) == 0);
}

std::byte* Arena::Take(std::uint64_t bytes, std::uint64_t used_bytes) {
  HEADRACE_CHECK(used_bytes + bytes <= resident_max_);
  std::uint64_t offset = filled_.TakeFirst(bytes);
  if (offset == kNone) {
    const std::uint64_t filled_max = resident_max_ - used_bytes - bytes;
    if (filled_.bytes() > filled_max) ReturnPages(filled_.bytes() - filled_max);
    offset = empty_.TakeFirst(bytes);
  }
  if (offset == kNone) {
    ReturnPages(filled_.bytes());
    offset = empty_.TakeFirst(bytes);
  }
  return offset == kNone ? nullptr : base_ + offset;
}

void Arena::GiveBack(std::byte* piece, std::uint64_t bytes) {
  filled_.Add(static_cast<std::uint64_t>(piece - base_), bytes);
}

void Arena::ReturnPages(std::uint64_t bytes) {
  while (bytes > 0) {
    const auto [offset, size] = filled_.TakeLast(bytes);
    HEADRACE_CHECK(memory_ != nullptr ? memory_->ReturnPages(offset, size)
                                      : madvise(base_ + offset, size, MADV_DONTNEED) == 0);
    empty_.Add(offset, size);
    bytes -= size;
  }
}

void Arena::Places::Add(std::uint64_t offset, std::uint64_t bytes) {
  bytes_ += bytes;
  auto next = sizes_.upper_bound(offset);
  if (next != sizes_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = sizes_.erase(next);
  }
  if (next != sizes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  sizes_.emplace_hint(next, offset, bytes);
}

std::uint64_t Arena::Places::TakeFirst(std::uint64_t bytes) {
  for (auto it = sizes_.begin(); it != sizes_.end(); ++it) {
    const auto [offset, size] = *it;
    if (size < bytes) continue;
    sizes_.erase(it);
    bytes_ -= size;
    if (size > bytes) Add(offset + bytes, size - bytes);
    return offset;
  }
  return kNone;
}

std::pair<std::uint64_t, std::uint64_t> Arena::Places::TakeLast(std::uint64_t bytes) {
  HEADRACE_CHECK(!sizes_.empty());
  auto& [offset, size] = *std::prev(sizes_.end());
  const std::uint64_t taken = std::min(size, bytes);
  bytes_ -= taken;
  if (taken < size) {
    size -= taken;
    return {offset + size, taken};
  }
  const std::pair<std::uint64_t, std::uint64_t> whole(offset, size);
  sizes_.erase(std::prev(sizes_.end()));
  return whole;
}

}  // namespace headrace
