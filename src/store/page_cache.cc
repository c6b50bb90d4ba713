#include "store/page_cache.h"

#include <sys/uio.h>

namespace headrace {
namespace {

constexpr std::uint32_t kMissesMax = 64;
constexpr std::uint32_t kAskEvery = 16;

bool ReadCached(int fd, std::span<std::byte> dst, std::uint64_t offset) {
  const struct iovec vector = {dst.data(), dst.size()};
  const ssize_t n = ::preadv2(fd, &vector, 1, static_cast<off_t>(offset), RWF_NOWAIT);
  return n >= 0 && static_cast<std::size_t>(n) == dst.size();
}

}  // namespace

bool PageCacheReader::Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
  // A miss makes the kernel fetch what was asked for. One byte at each end, asked for first, keeps
  // that to a page: only a range cached at both ends but not between is read twice.
  const std::uint64_t last = range.size - 1;
  const bool hit = ReadCached(file.fd(), dst.first(1), range.offset) &&
                   ReadCached(file.fd(), dst.first(1), range.offset + last) &&
                   ReadCached(file.fd(), dst.first(range.size), range.offset);
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
