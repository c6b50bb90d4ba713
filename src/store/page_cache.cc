#include "store/page_cache.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory/guarded_copy.h"
#include "base/units.h"
#include "store/file_io.h"

namespace headrace {
namespace {

constexpr std::uint32_t kHitsMin = 64;
constexpr std::uint32_t kMissesMax = 64;
constexpr std::uint32_t kAskEvery = 16;

// Reads of which the beginning is fetched while others are copied.
constexpr std::size_t kPrefetchAhead = 4;

// To map a file and to unmap it cost as much as some hundred reads.
constexpr std::uint64_t kMappedBytesMin = kMiB;

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

// How many pages of a range the page cache holds, found out without touching them. std::nullopt:
// the system cannot tell (an older kernel, a file without write permission, a file system that
// caches pages elsewhere).
std::optional<std::uint64_t> CachedPages(const OpenFile& file, ByteRange range) {
  if (!file.cache_is_its_own()) return std::nullopt;
  const CacheStatRange asked = {.offset = range.offset, .size = range.size};
  CacheStat found;
  if (::syscall(kCacheStat, file.fd(), &asked, &found, 0) != 0) return std::nullopt;
  return found.cached;
}

std::optional<bool> HoldsAll(const OpenFile& file, ByteRange range) {
  const std::optional<std::uint64_t> cached = CachedPages(file, range);
  if (!cached.has_value()) return std::nullopt;
  static const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = range.offset / page_bytes;
  const std::uint64_t last = (range.offset + range.size - 1) / page_bytes;
  return *cached >= last - first + 1;
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

// The files of a group of reads: each is looked up once.
class FilesOfReads {
 public:
  explicit FilesOfReads(FileTable& files) : files_(files) {}

  // Null: it is not open, or does not have the range. Valid as long as this object.
  OpenFile* Find(const Extent& extent) {
    for (const auto& [object, file] : found_) {
      if (object != extent.object) continue;
      return extent.range.end() <= file->size() ? file.get() : nullptr;
    }
    std::shared_ptr<OpenFile> file = files_.FindOpen(extent);
    if (file == nullptr) return nullptr;
    return found_.emplace_back(extent.object, std::move(file)).second.get();
  }

  // Those that have become shorter: the last page of one that is mapped has zeros in place of what
  // was cut off.
  [[nodiscard]] std::vector<const OpenFile*> Shortened() const {
    std::vector<const OpenFile*> shortened;
    for (const auto& [object, file] : found_) {
      struct stat now = {};
      const bool whole =
          ::fstat(file->fd(), &now) == 0 && static_cast<std::uint64_t>(now.st_size) >= file->size();
      if (!whole) shortened.push_back(file.get());
    }
    return shortened;
  }

 private:
  FileTable& files_;
  std::vector<std::pair<ObjectId, std::shared_ptr<OpenFile>>> found_;
};

// Whether it is large enough, and the system can tell what the page cache holds of it.
bool IsWorthMapping(const OpenFile& file) {
  return file.cache_is_its_own() && file.size() >= kMappedBytesMin;
}

// Null: it cannot be mapped, or is not worth that.
FileMapping* MappingOf(OpenFile& file) {
  if (!IsWorthMapping(file)) return nullptr;
  return file.mapping([&file](ByteRange range) { return CachedPages(file, range).value_or(0); });
}

}  // namespace

bool PageCacheReader::Read(const OpenFile& file, ByteRange range, std::span<std::byte> dst) {
  const bool sure = hits_in_a_row_.load(std::memory_order_relaxed) >= kHitsMin;
  const bool hit = (sure || WorthReading(file, range, dst)) &&
                   ReadCached(file.fd(), dst.first(range.size), range.offset);
  Count(hit);
  return hit;
}

void PageCacheReader::ReadAll(FileTable& files, std::span<NowRead> reads) {
  struct Source {
    OpenFile* file = nullptr;
    FileMapping* mapping = nullptr;  // null: it may not be copied from
  };
  InstallCopyGuard();
  const std::uint32_t now_s = CoarseSeconds();
  FilesOfReads open(files);
  std::vector<Source> sources(reads.size());
  for (std::size_t i = 0; i < reads.size(); ++i) {
    OpenFile* const file = reads[i].dst.empty() ? nullptr : open.Find(reads[i].extent);
    if (file == nullptr) continue;  // Opening it may take as long as a read.
    FileMapping* const mapping = MappingOf(*file);
    const bool may = mapping != nullptr && mapping->MayCopy(reads[i].extent.range, now_s);
    sources[i] = {file, may ? mapping : nullptr};
  }
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const std::size_t ahead = i + kPrefetchAhead;
    if (ahead < reads.size() && sources[ahead].mapping != nullptr) {
      sources[ahead].mapping->Prefetch(reads[ahead].extent.range);
    }
    const auto [file, mapping] = sources[i];
    if (file == nullptr) continue;
    NowRead& read = reads[i];
    bool hit = mapping != nullptr && mapping->Copy(read.extent.range, read.dst);
    if (hit) {
      Count(true);
    } else {
      hit = Read(*file, read.extent.range, read.dst);
    }
    read.answer = hit ? ReadNowAnswer::kRead : ReadNowAnswer::kNotHeld;
  }
  for (const OpenFile* const file : open.Shortened()) {
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (sources[i].file == file) reads[i].answer = ReadNowAnswer::kNotHeld;
    }
  }
}

bool PageCacheReader::HoldsMapped(FileTable& files, const Extent& extent) {
  const std::shared_ptr<OpenFile> file = files.FindOpen(extent);
  return file != nullptr && IsWorthMapping(*file) && HoldsAll(*file, extent.range).value_or(false);
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
