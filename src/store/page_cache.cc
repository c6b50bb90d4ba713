#include "store/page_cache.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace headrace {
namespace {

constexpr std::uint32_t kHitsMin = 64;
constexpr std::uint32_t kMissesMax = 64;
constexpr std::uint32_t kAskEvery = 16;

// cachestat(2), Linux 6.5. Older headers lack its number, the same everywhere except on Alpha, and
// its types.
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

// Whether the page cache holds all of a range, without touching it. std::nullopt: the system cannot
// tell (an older kernel, a file without write permission, a file system that caches pages
// elsewhere).
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

// A miss makes the kernel fetch the data, so usually this checks first whether the page cache holds
// it. If the system cannot tell, it reads one byte at each end, which limits the fetch to a page:
// only a range cached at both ends but not in between is read twice.
bool WorthReading(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
  if (const std::optional<bool> holds = HoldsAll(file, range)) return *holds;
  return ReadCached(file.fd(), dst.first(1), range.offset) &&
         ReadCached(file.fd(), dst.first(1), range.offset + range.size - 1);
}

}  // namespace

bool PageCacheReader::Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
  const bool sure = hits_in_a_row_.load(std::memory_order_relaxed) >= kHitsMin;
  const bool hit = (sure || WorthReading(file, range, dst)) &&
                   ReadCached(file.fd(), dst.first(range.size), range.offset);
  Count(hit);
  return hit;
}

// Writes only on a change: threads share the cache line.
void PageCacheReader::Count(bool hit) {
  std::atomic<std::uint32_t>& more = hit ? hits_in_a_row_ : misses_in_a_row_;
  std::atomic<std::uint32_t>& none = hit ? misses_in_a_row_ : hits_in_a_row_;
  if (more.load(std::memory_order_relaxed) < std::max(kHitsMin, kMissesMax)) {
    more.fetch_add(1, std::memory_order_relaxed);
  }
  if (none.load(std::memory_order_relaxed) != 0) none.store(0, std::memory_order_relaxed);
}

bool PageCacheReader::WorthAsking() {
  if (misses_in_a_row_.load(std::memory_order_relaxed) < kMissesMax) return true;
  return asked_.fetch_add(1, std::memory_order_relaxed) % kAskEvery == 0;
}

}  // namespace headrace
