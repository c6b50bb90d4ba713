#include "store/file_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/memory/guarded_copy.h"
#include "base/units.h"

namespace headrace {
namespace {

// What is looked up at once, and in what grain it is noted: a bit each of 32.
constexpr std::uint64_t kPart = 2 * kMiB;
constexpr std::uint64_t kBlock = kPart / 32;
constexpr std::uint32_t kAllBlocks = ~std::uint32_t{0};
constexpr std::uint64_t kPageMin = 4 * kKiB;

constexpr std::size_t kCacheLine = 64;
// The processor sees a sequence after some lines, and fetches the rest itself.
constexpr std::size_t kLinesFetched = 8;

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;
#endif

std::uint64_t PageBytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

std::unique_ptr<FileMapping> FileMapping::Make(int fd, std::uint64_t size, CachedPages cached) {
  if (size == 0) return nullptr;
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  // What is not there is not wanted: no reading ahead around a page that has left.
  (void)::madvise(memory, size, MADV_RANDOM);
  return std::unique_ptr<FileMapping>(
      new FileMapping({static_cast<const std::byte*>(memory), size}, std::move(cached)));
}

FileMapping::FileMapping(std::span<const std::byte> bytes, CachedPages cached)
    : bytes_(bytes), cached_(std::move(cached)), looked_((bytes.size() - 1) / kPart + 1) {}

FileMapping::~FileMapping() {
  HEADRACE_CHECK(::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()) == 0);
}

bool FileMapping::MayCopy(ByteRange range, std::uint32_t now_s) {
  HEADRACE_CHECK(range.size > 0 && range.end() <= bytes_.size());
  const std::uint64_t last = range.end() - 1;
  for (std::uint64_t part = range.offset / kPart; part <= last / kPart; ++part) {
    std::uint64_t looked = looked_[part].load(std::memory_order_relaxed);
    const auto then_s = static_cast<std::uint32_t>(looked >> 32);
    if (then_s == 0 || now_s - then_s > 1) {
      looked = std::uint64_t{now_s} << 32 | Look(part);
      looked_[part].store(looked, std::memory_order_relaxed);
    }
    const std::uint64_t first_block = std::max(range.offset, part * kPart) % kPart / kBlock;
    const std::uint64_t last_block = std::min(last, part * kPart + kPart - 1) % kPart / kBlock;
    const std::uint32_t wanted = kAllBlocks >> (31 - (last_block - first_block)) << first_block;
    if ((looked & wanted) != wanted) return false;
  }
  return true;
}

// Which blocks of a part are held.
std::uint32_t FileMapping::Look(std::uint64_t part) const {
  const ByteRange range = {part * kPart, std::min(kPart, bytes_.size() - part * kPart)};
  const std::span<const std::byte> bytes = bytes_.subspan(range.offset, range.size);
  const std::uint64_t pages = (range.size - 1) / PageBytes() + 1;
  const std::uint64_t cached = cached_(range);
  if (cached == 0) return 0;
  const std::uint32_t held = cached >= pages ? kAllBlocks : LookAtPages(bytes);
  MapBlocks(bytes, held);
  return held;
}

// The same page by page, for a part that is held not as a whole.
std::uint32_t FileMapping::LookAtPages(std::span<const std::byte> part) const {
  std::array<unsigned char, kPart / kPageMin> pages{};
  if (::mincore(const_cast<std::byte*>(part.data()), part.size(), pages.data()) != 0) return 0;
  std::uint32_t held = kAllBlocks;
  for (std::uint64_t offset = 0; offset < part.size(); offset += PageBytes()) {
    if (pages[offset / PageBytes()] % 2 == 0) held &= ~(std::uint32_t{1} << offset / kBlock);
  }
  // Without write permission for the file, the system says of every page that it is there.
  return held == kAllBlocks ? 0 : held;
}

// Maps all pages of the blocks: one by one that is a page fault for each few of them.
void FileMapping::MapBlocks(std::span<const std::byte> part, std::uint32_t held) const {
  for (std::uint64_t offset = 0; offset < part.size();) {
    const auto run = static_cast<std::uint64_t>(std::countr_one(held >> offset / kBlock));
    const std::uint64_t size = std::min(run * kBlock, part.size() - offset);
    if (size > 0) {
      void* const at = const_cast<std::byte*>(part.data() + offset);
      (void)::madvise(at, size, MADV_POPULATE_READ);
    }
    offset += size + kBlock;  // The block after a run is not held.
  }
}

bool FileMapping::Copy(ByteRange range, std::span<std::byte> to) const {
  return GuardedCopy(bytes_.subspan(range.offset, range.size), to);
}

void FileMapping::Prefetch(ByteRange range) const {
  const std::byte* const begin = bytes_.data() + range.offset;
  const std::size_t lines = std::min<std::size_t>(kLinesFetched, range.size / kCacheLine);
  for (std::size_t line = 0; line < lines; ++line) __builtin_prefetch(begin + line * kCacheLine);
}

}  // namespace headrace
