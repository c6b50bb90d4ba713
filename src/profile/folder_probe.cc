#include "profile/folder_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/format/errors.h"
#include "base/prng.h"
#include "store/file_io.h"

namespace headrace {
namespace {

constexpr mode_t kOwnerOnly = 0600;

// A file without a name: the descriptor, or an errno below 0.
int OpenNameless(const std::string& folder, int flags) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, kOwnerOnly);
  if (fd >= 0) return fd;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT) return -errno;
  // No O_TMPFILE here, or no folder: this tells.
  std::string name = folder + "/.headrace-probe-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC | flags);
  if (named < 0) return -errno;
  ::unlink(name.c_str());
  return named;
}

// All of `bytes` at `offset`, or an error.
Status Transfer(int fd, bool writes, std::span<std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const auto at = static_cast<off_t>(offset);
    const ssize_t moved = writes ? ::pwrite(fd, bytes.data(), bytes.size(), at)
                                 : ::pread(fd, bytes.data(), bytes.size(), at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return ErrnoStatus(errno, writes ? "pwrite" : "pread");
    if (moved == 0) {
      return {writes ? StatusCode::kResourceExhausted : StatusCode::kDataLoss,
              "the file ends at byte " + std::to_string(offset)};
    }
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
    offset += static_cast<std::uint64_t>(moved);
  }
  return {};
}

// Bytes that no device can store in fewer.
void Scramble(std::span<std::byte> bytes, std::uint64_t item) {
  Prng random(0, 0, RandomStream::kPack, item);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes.size();
       at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.Next64();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
}

std::string Doing(const std::string& folder) { return "measuring folder " + folder; }

}  // namespace

Result<std::unique_ptr<FolderProbe>> FolderProbe::Make(const std::string& folder,
                                                       std::uint64_t bytes,
                                                       const SliceLimits& limits) {
  if (bytes < kBytesMin) {
    return InvalidArgument("{} with a file of {}: must be at least {}", Doing(folder),
                           FormatBytes(bytes), FormatBytes(kBytesMin));
  }
  bool direct = true;
  int fd = OpenNameless(folder, O_DIRECT);
  if (fd == -EINVAL) {  // tmpfs and others have no O_DIRECT.
    direct = false;
    fd = OpenNameless(folder, 0);
  }
  if (fd < 0) return ErrnoStatus(-fd, "open").WithContext(Doing(folder));
  std::unique_ptr<FolderProbe> probe(new FolderProbe(folder, fd, direct));
  const Status filled = probe->Fill(bytes, limits);
  if (!filled.ok()) return filled.WithContext(Doing(folder));
  return probe;
}

Status FolderProbe::Fill(std::uint64_t bytes, const SliceLimits& limits) {
  const MonotonicClock clock;
  const std::int64_t end_ns = clock.NowNanos() + limits.duration_max_ns;
  ProbeBuffer buffer;
  const std::span<std::byte> piece = buffer.AtLeast(kMiB);
  if (piece.empty()) return ResourceExhausted("no memory");
  while (bytes_ + kMiB <= bytes) {
    if (limits.keep_going && !limits.keep_going()) return StoppedMeasuring();
    Scramble(piece, bytes_);
    HEADRACE_RETURN_IF_ERROR(Transfer(fd_.get(), /*writes=*/true, piece, bytes_));
    bytes_ += kMiB;
    if (bytes_ >= kBytesMin && clock.NowNanos() >= end_ns) break;
  }
  return {};
}

Result<Slice> FolderProbe::Read(const Load& load, const SliceLimits& limits) {
  return Measure(load, limits, /*writes=*/false);
}

Result<Slice> FolderProbe::Write(const Load& load, const SliceLimits& limits) {
  return Measure(load, limits, /*writes=*/true);
}

Result<Slice> FolderProbe::Measure(const Load& load, const SliceLimits& limits, bool writes) {
  const std::uint64_t bytes = RoundUp(load.bytes, kBufferAlignment);
  if (load.bytes == 0 || bytes > bytes_ || load.users < 1) {
    return InvalidArgument(
        "{} in pieces of {} by {} threads: must be from 1 byte to {}, by at least 1",
        Doing(folder_), FormatBytes(load.bytes), load.users, FormatBytes(bytes_));
  }
  const auto users = static_cast<std::size_t>(load.users);
  std::vector<ProbeBuffer> buffers(users);
  std::vector<Prng> places;
  for (std::size_t i = 0; i < users; ++i) {
    places.emplace_back(slices_, 0, RandomStream::kOrder, i);
  }
  ++slices_;
  Result<Slice> slice = MeasureThreads(
      load.users, limits, [&](int thread, std::uint64_t round) -> Result<std::uint64_t> {
        const auto mine = static_cast<std::size_t>(thread);
        const std::span<std::byte> buffer = buffers[mine].AtLeast(bytes);
        if (buffer.empty()) return ResourceExhausted("no memory");
        if (round == 0 && writes) Scramble(buffer, mine);
        const std::uint64_t place = places[mine].Below(bytes_ / bytes);
        HEADRACE_RETURN_IF_ERROR(Transfer(fd_.get(), writes, buffer.first(bytes), place * bytes));
        return bytes;
      });
  if (!slice.ok()) return slice.status().WithContext(Doing(folder_));
  return slice;
}

}  // namespace headrace
