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

// Pieces to look at first; until then they are no neighbours of other free ones.
constexpr std::size_t kRecentMax = 64;

// From this size on the last huge page, of which only a part may be wanted, does not matter.
constexpr std::uint64_t kArenaHugeFrom = 8 * kMiB;

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
  if (memory != MAP_FAILED) UseMapping(memory, bytes);
}

Arena::Arena(std::uint64_t resident_max, std::shared_ptr<SharedMemory> memory)
    : resident_max_(resident_max / kPage * kPage), memory_(std::move(memory)) {
  if (memory_ == nullptr) return;
  HEADRACE_CHECK(memory_->bytes().size() == MappedBytes(resident_max));
  UseMapping(memory_->bytes().data(), memory_->bytes().size());
}

void Arena::UseMapping(void* memory, std::uint64_t bytes) {
  base_ = static_cast<std::byte*>(memory);
  mapped_bytes_ = bytes;
  // A wish: without it there are more page faults, once.
  if (resident_max_ >= kArenaHugeFrom) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  free_.Add(0, bytes);
}

Arena::~Arena() {
  if (base_ != nullptr && memory_ == nullptr) HEADRACE_CHECK(munmap(base_, mapped_bytes_) == 0);
}

std::byte* Arena::Take(std::uint64_t bytes, std::uint64_t used_bytes) {
  HEADRACE_CHECK(used_bytes + bytes <= resident_max_);
  if (std::byte* const piece = TakeRecent(bytes); piece != nullptr) return piece;
  ForgetRecent();
  return TakeAt(FindPlace(bytes, used_bytes), bytes, used_bytes);
}

std::optional<std::byte*> Arena::TakeReady(std::uint64_t bytes, std::uint64_t used_bytes) {
  HEADRACE_CHECK(used_bytes + bytes <= resident_max_);
  if (std::byte* const piece = TakeRecent(bytes); piece != nullptr) return piece;
  ForgetRecent();
  const Place place = FindPlace(bytes, used_bytes);
  if (place.returns_pages) return std::nullopt;
  return TakeAt(place, bytes, used_bytes);
}

// One of the same size has the same pages, so nothing is returned for it. Null: there is none.
std::byte* Arena::TakeRecent(std::uint64_t bytes) {
  if (recent_.empty() || recent_.back().second != bytes) return nullptr;
  std::byte* const piece = base_ + recent_.back().first;
  recent_.pop_back();
  return piece;
}

void Arena::ForgetRecent() {
  for (const auto& [offset, bytes] : recent_) {
    const auto place = places_.extract(offset);
    free_.Add(offset, place.empty() ? bytes : place.mapped());
    filled_.Add(offset, bytes);
  }
  recent_.clear();
}

std::byte* Arena::TakeAt(const Place& place, std::uint64_t bytes, std::uint64_t used_bytes) {
  if (place.offset == kNone) {
    ReturnPages(filled_.bytes());
    return nullptr;
  }
  if (bytes > kExactMax && PlaceBytes(bytes) == bytes) sizes_.insert(bytes);
  free_.Remove(place.offset, place.bytes);
  filled_.Remove(place.offset, bytes);
  if (place.bytes != bytes) places_.emplace(place.offset, place.bytes);
  const std::uint64_t filled_max = resident_max_ - used_bytes - bytes;
  if (filled_.bytes() > filled_max) ReturnPages(filled_.bytes() - filled_max);
  return base_ + place.offset;
}

// The size of the place for a piece: the largest that a piece has had, of those up to half as large
// again. So pieces of nearly one size come to have places of one size.
std::uint64_t Arena::PlaceBytes(std::uint64_t bytes) const {
  if (bytes <= kExactMax) return bytes;
  const auto above = sizes_.upper_bound(bytes + bytes / 2);
  return above != sizes_.begin() ? std::max(*std::prev(above), bytes) : bytes;
}

// A place whose pages suffice comes before one for which pages elsewhere are returned.
Arena::Place Arena::FindPlace(std::uint64_t bytes, std::uint64_t used_bytes) const {
  const std::uint64_t filled_max = resident_max_ - used_bytes - bytes;
  const auto suffices = [&](std::uint64_t offset) {
    return filled_.bytes() <= filled_max ||
           filled_.bytes() - filled_.BytesIn(offset, bytes) <= filled_max;
  };
  const auto any = [](std::uint64_t /*offset*/) { return true; };
  const std::uint64_t wide = PlaceBytes(bytes);
  for (const std::uint64_t size : {wide, bytes}) {
    const std::uint64_t offset = free_.FindFirst(size, suffices);
    if (offset != kNone) return {.offset = offset, .bytes = size};
  }
  for (const std::uint64_t size : {wide, bytes}) {
    const std::uint64_t offset = free_.FindFirst(size, any);
    if (offset != kNone) return {.offset = offset, .bytes = size, .returns_pages = true};
  }
  return {.returns_pages = filled_.bytes() > 0};
}

void Arena::GiveBack(std::byte* piece, std::uint64_t bytes) {
  if (recent_.size() == kRecentMax) ForgetRecent();
  recent_.emplace_back(static_cast<std::uint64_t>(piece - base_), bytes);
}

void Arena::ReturnFreePages() {
  ForgetRecent();
  while (filled_.bytes() > 0) {
    const auto [offset, size] = filled_.TakeLast(filled_.bytes());
    if (memory_ != nullptr) {
      (void)memory_->ReturnPages(offset, size);
    } else {
      (void)madvise(base_ + offset, size, MADV_DONTNEED);
    }
  }
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

template <typename Accepts>
std::uint64_t Arena::Ranges::FindFirst(std::uint64_t bytes, Accepts accepts) const {
  for (const auto& [offset, size] : sizes_) {
    if (size >= bytes && accepts(offset)) return offset;
  }
  return kNone;
}

std::uint64_t Arena::Ranges::BytesIn(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t end = offset + bytes;
  auto it = sizes_.upper_bound(offset);
  if (it != sizes_.begin()) --it;
  std::uint64_t inside = 0;
  for (; it != sizes_.end() && it->first < end; ++it) {
    const std::uint64_t from = std::max(it->first, offset);
    const std::uint64_t to = std::min(it->first + it->second, end);
    if (from < to) inside += to - from;
  }
  return inside;
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
