#include "read_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"
#include "store/file_io.h"

namespace headrace {
namespace {

constexpr std::size_t kPieceBytes = kMiB;
constexpr std::uint64_t kFilePageBytes = 4096;

// When another process drops caches (echo 2 > drop_caches), the kernel takes pages away meanwhile.
constexpr int kWarmTries = 3;

// cachestat(2), Linux 6.5: see store/page_cache.cc.
constexpr long kCacheStat = 451;

// Pages of a file in the page cache; empty if cachestat() cannot tell. An overlay's pages are those
// of the file below, which cachestat() does not count.
std::optional<std::uint64_t> CacheStatPages(int fd) {
  struct statfs system = {};
  if (::fstatfs(fd, &system) != 0 || system.f_type == OVERLAYFS_SUPER_MAGIC) return std::nullopt;
  const std::array<std::uint64_t, 2> whole = {0, 0};
  std::array<std::uint64_t, 5> found = {};
  if (::syscall(kCacheStat, fd, whole.data(), found.data(), 0) != 0) return std::nullopt;
  return found[0];
}

// The same by mincore(), which calls every page resident if the caller may not write the file.
std::optional<std::uint64_t> MincorePages(int fd, std::uint64_t bytes) {
  if (bytes == 0) return 0;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> pages(RoundUp(bytes, kFilePageBytes) / kFilePageBytes);
  const bool told = ::mincore(memory, bytes, pages.data()) == 0;
  HEADRACE_CHECK(::munmap(memory, bytes) == 0);
  if (!told) return std::nullopt;
  return static_cast<std::uint64_t>(std::count_if(
      pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

Status WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) return ErrnoStatus(errno, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return Status();
}

// xorshift64*: Prng takes ten times as long, and nothing depends on these bytes.
void Fill(std::span<std::uint64_t> words, std::uint64_t& state) {
  for (std::uint64_t& word : words) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    word = state * 0x2545F4914F6CDD1DU;
  }
}

}  // namespace

Status MakeRandomFile(const std::string& path, std::uint64_t bytes) {
  const std::string partial = path + ".partial";
  const UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return ErrnoStatus(errno, "open").WithContext("making " + partial);
  std::vector<std::uint64_t> words(kPieceBytes / sizeof(std::uint64_t));
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  for (std::uint64_t left = bytes; left > 0;) {
    Fill(words, state);
    const std::uint64_t piece = std::min<std::uint64_t>(left, kPieceBytes);
    const Status status = WriteAll(fd.get(), std::as_bytes(std::span(words)).first(piece));
    if (!status.ok()) return status.WithContext("making " + partial);
    left -= piece;
  }
  if (::fsync(fd.get()) != 0 || std::rename(partial.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "fsync and rename").WithContext("making " + partial);
  }
  return Status();
}

Result<std::unique_ptr<ReadFiles>> ReadFiles::Open(const std::vector<std::string>& paths) {
  std::vector<File> files;
  for (const std::string& path : paths) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat stat = {};
    if (!fd || ::fstat(fd.get(), &stat) != 0) {
      return ErrnoStatus(errno, "open").WithContext("opening " + path);
    }
    files.push_back({{path, static_cast<std::uint64_t>(stat.st_size), 0}, std::move(fd)});
  }
  return std::unique_ptr<ReadFiles>(new ReadFiles(std::move(files)));
}

Result<FileInfo> ReadFiles::file(ObjectId object) const { return info(Raw(object)); }

std::uint64_t ReadFiles::bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const File& file) { return sum + file.info.size; });
}

Result<ReadFiles::Pages> ReadFiles::CountPages() const {
  Pages pages;
  for (const File& file : files_) {
    std::optional<std::uint64_t> resident = CacheStatPages(file.fd.get());
    if (!resident.has_value()) resident = MincorePages(file.fd.get(), file.info.size);
    if (!resident.has_value()) {
      return FailedPrecondition(
          "counting pages of {} in the page cache: neither cachestat nor mincore can tell",
          file.info.path);
    }
    pages.resident += *resident;
    pages.all += RoundUp(file.info.size, kFilePageBytes) / kFilePageBytes;
  }
  return pages;
}

Status ReadFiles::CheckCold() const {
  HEADRACE_ASSIGN_OR_RETURN(const Pages pages, CountPages());
  if (pages.resident == 0) return Status();
  return FailedPrecondition("reading cold: the page cache holds {} of the files' {} pages",
                            pages.resident, pages.all);
}

Status ReadFiles::MakeCold() const {
  for (const File& file : files_) {
    // Only clean pages can be dropped.
    if (::fdatasync(file.fd.get()) != 0) {
      return ErrnoStatus(errno, "fdatasync").WithContext("reading cold: " + file.info.path);
    }
    ::posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  return CheckCold();
}

Status ReadFiles::CheckWarm() const {
  HEADRACE_ASSIGN_OR_RETURN(const Pages pages, CountPages());
  if (pages.resident >= pages.all) return Status();
  return FailedPrecondition(
      "reading warm: the page cache holds {} of the files' {} pages; "
      "take smaller files",
      pages.resident, pages.all);
}

Status ReadFiles::MakeWarm() const {
  Status status;
  for (int i = 0; i < kWarmTries; ++i) {
    HEADRACE_RETURN_IF_ERROR(ReadAll());
    status = CheckWarm();
    if (status.ok()) break;
  }
  return status;
}

Status ReadFiles::ReadAll() const {
  std::vector<std::byte> sink(kPieceBytes);
  for (const File& file : files_) {
    for (std::uint64_t at = 0; at < file.info.size; at += kPieceBytes) {
      const Status status = ReadAt(file.fd.get(), sink, at, 1).status();
      if (!status.ok()) return status.WithContext("reading " + file.info.path);
    }
  }
  return Status();
}

}  // namespace headrace
