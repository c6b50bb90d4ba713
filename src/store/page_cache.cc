#include "store/page_cache.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <optional>

namespace headrace {
namespace {

constexpr std::uint32_t kMissesMax = 64;
constexpr std::uint32_t kAskEvery = 16;

// cachestat(2), Linux 6.5; older headers have neither the number, the same everywhere but on Alpha,
// nor the types.
constexpr long kCacheStat = 451;
struct CacheStatRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
struct CacheStat {
  std::uint64_t cached = 0;  // pages
  std::uint64_t dirty = 0;
  std::uint64_t writeback = 0;
  std::uint64_t evicted = 0;
  std::uint64_t recently_evicted = 0;
};

// Whether the page cache holds all of a range, without touching it; nothing: the system does not
// tell (an older one, a file that is not ours to write, a file system that keeps pages elsewhere).
std::optional<bool> HoldsAll(const OpenFile& file, ByteRange range) {
  if (!file.cache_is_its_own()) return std::nullopt;
  const CacheStatRange asked = {.offset = range.offset, .size = range.size};
  CacheStat found;
  if (::syscall(kCacheStat, file.fd(), &asked, &found, 0) != 0) return std::nullopt;
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = range.offset / page_bytes;
  const std::uint64_t last = (range.offset + range.size - 1) / page_bytes;
  return found.cached >= last - first + 1;
}

bool ReadCached(int fd, std::span<std::byte> dst, std::uint64_t offset) {
  const struct iovec vector = {dst.data(), dst.size()};
  const ssize_t n = ::preadv2(fd, &vector, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  return n >= 0 && static_cast<std::size_t>(n) == dst.size();
}

}  // namespace

bool PageCacheReader::Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
  const std::optional<bool> holds = HoldsAll(file, range);
  // Where the system does not tell, a miss makes the kernel fetch what was asked for. One byte at
  // each end, asked for first, keeps that to a page: only a range cached at both ends but not
  // between is read twice.
  const std::uint64_t last = range.size - 1;
  const bool worth = holds.has_value()
                         ? *holds
                         : ReadCached(file.fd(), dst.first(1), range.offset) &&
                               ReadCached(file.fd(), dst.first(1), range.offset + last);
  const bool hit = worth && ReadCached(file.fd(), dst.first(range.size), range.offset);
  if (hit) {
    misses_in_a_row_.store(0, std::memory_order_relaxed);
  } else {
    misses_in_a_row_.fetch_add(1, std::memory_order_relaxed);
  }
  return hit;
}

bool PageCacheReader::WorthAsking() {
  if (misses_in_a_row_.load(std::memory_order_relaxed) < kMissesMax) return true;
  return asked_.fetch_add(1, std::memory_order_relaxed) % kAskEvery == 0;
}

}  // namespace headrace
