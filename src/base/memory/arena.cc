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

// Up to here places are as large as their pieces: pages of small pieces fit others in any case.
constexpr std::uint64_t kExactMax = 32 * kKiB;

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
  free_.Add(0, bytes);
}

Arena::~Arena() {
  if (base_ != nullptr && memory_ == nullptr) HEADRACE_CHECK(munmap(base_, mapped_bytes_) == 0);
}

std::byte* Arena::Take(std::uint64_t bytes, std::uint64_t used_bytes) {
  HEADRACE_CHECK(used_bytes + bytes <= resident_max_);
  std::uint64_t place_bytes = PlaceBytes(bytes);
  std::uint64_t offset = free_.TakeFirst(place_bytes);
  if (offset == kNone) {
    place_bytes = bytes;
    offset = free_.TakeFirst(bytes);
  }
  if (offset == kNone) {
    ReturnPages(filled_.bytes());
    return nullptr;
  }
  places_.emplace(offset, place_bytes);
  filled_.Remove(offset, bytes);
  const std::uint64_t filled_max = resident_max_ - used_bytes - bytes;
  if (filled_.bytes() > filled_max) ReturnPages(filled_.bytes() - filled_max);
  return base_ + offset;
}

// The largest size of a place so far that is at most half as large again as the piece: pieces of
// nearly one size come to have places of one size.
std::uint64_t Arena::PlaceBytes(std::uint64_t bytes) {
  if (bytes <= kExactMax) return bytes;
  const auto above = place_bytes_.upper_bound(bytes + bytes / 2);
  if (above != place_bytes_.begin() && *std::prev(above) >= bytes) return *std::prev(above);
  place_bytes_.insert(bytes);
  return bytes;
}

void Arena::GiveBack(std::byte* piece, std::uint64_t bytes) {
  const auto place = places_.extract(static_cast<std::uint64_t>(piece - base_));
  HEADRACE_CHECK(!place.empty() && place.mapped() >= bytes);
  free_.Add(place.key(), place.mapped());
  filled_.Add(place.key(), bytes);
}

void Arena::ReturnPages(std::uint64_t bytes) {
  while (bytes > 0) {
    const auto [offset, size] = filled_.TakeLast(bytes);
    HEADRACE_CHECK(memory_ != nullptr ? memory_->ReturnPages(offset, size)
                                      : madvise(base_ + offset, size, MADV_DONTNEED) == 0);
    bytes -= size;
  }
}

void Arena::Ranges::Add(std::uint64_t offset, std::uint64_t bytes) {
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

std::uint64_t Arena::Ranges::TakeFirst(std::uint64_t bytes) {
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

std::pair<std::uint64_t, std::uint64_t> Arena::Ranges::TakeLast(std::uint64_t bytes) {
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

void Arena::Ranges::Remove(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t end = offset + bytes;
  auto it = sizes_.upper_bound(offset);
  if (it != sizes_.begin()) --it;
  while (it != sizes_.end() && it->first < end) {
    const auto [from, size] = *it;
    if (from + size <= offset) {
      ++it;
      continue;
    }
    it = sizes_.erase(it);
    bytes_ -= size;
    if (from < offset) Add(from, offset - from);
    if (from + size > end) Add(end, from + size - end);
  }
}

}  // namespace headrace
