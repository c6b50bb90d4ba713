#include "tier/tier_data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::size_t kChunkBytes = kMiB;
constexpr std::size_t kChunksRetained = 8;

// Iterates over the pieces of an entry in the file.
class Cursor {
 public:
  Cursor(std::span<const UnitRun> runs, std::uint64_t unit_bytes)
      : runs_(runs), unit_bytes_(unit_bytes) {}

  struct Piece {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // The longest contiguous piece of the next `bytes`.
  Piece Next(std::uint64_t bytes) {
    HEADRACE_CHECK(!runs_.empty());
    const std::uint64_t left = runs_.front().count * unit_bytes_ - inside_;
    const Piece piece = {runs_.front().first * unit_bytes_ + inside_, std::min(bytes, left)};
    inside_ += piece.bytes;
    if (piece.bytes == left) {
      runs_ = runs_.subspan(1);
      inside_ = 0;
    }
    return piece;
  }

 private:
  std::span<const UnitRun> runs_;
  const std::uint64_t unit_bytes_;
  std::uint64_t inside_ = 0;  // bytes of the first run that were returned
};

}  // namespace

TierData::TierData(std::string path, UniqueFd file, UniqueFd direct, std::uint64_t unit_bytes,
                   TierIo& io)
    : path_(std::move(path)),
      file_(std::move(file)),
      direct_(std::move(direct)),
      unit_bytes_(unit_bytes),
      io_(io) {}

TierData::Chunk TierData::TakeChunk() {
  MutexLock lock(mutex_);
  if (chunks_.empty()) {
    Chunk chunk{static_cast<std::byte*>(std::aligned_alloc(kTierBlock, kChunkBytes)), std::free};
    HEADRACE_CHECK(chunk != nullptr);  // 1 MiB.
    return chunk;
  }
  Chunk chunk = std::move(chunks_.back());
  chunks_.pop_back();
  return chunk;
}

void TierData::GiveChunk(Chunk chunk) {
  MutexLock lock(mutex_);
  if (chunks_.size() < kChunksRetained) chunks_.push_back(std::move(chunk));
}

// Collects parts into blocks and writes these.
class TierData::Writer {
 public:
  Writer(TierData& data, std::span<const UnitRun> runs)
      : data_(data), cursor_(runs, data.unit_bytes_), chunk_(data.TakeChunk()) {}
  ~Writer() { data_.GiveChunk(std::move(chunk_)); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns 0 or -errno.
  int Add(std::span<const std::byte> part) {
    hasher_.Add(part);
    while (!part.empty()) {
      const std::size_t bytes = std::min(part.size(), kChunkBytes - filled_);
      std::memcpy(chunk_.get() + filled_, part.data(), bytes);
      filled_ += bytes;
      part = part.subspan(bytes);
      if (filled_ < kChunkBytes) continue;
      if (const int error = Flush(); error != 0) return error;
    }
    return 0;
  }
  int Finish() {
    const std::size_t blocks = RoundUp(filled_, kTierBlock);
    std::memset(chunk_.get() + filled_, 0, blocks - filled_);
    filled_ = blocks;
    return Flush();
  }
  [[nodiscard]] std::uint64_t hash() const { return hasher_.Digest(); }

 private:
  int Flush() {
    std::span<const std::byte> left(chunk_.get(), std::exchange(filled_, 0));
    while (!left.empty()) {
      const Cursor::Piece piece = cursor_.Next(left.size());
      if (const int error = data_.WriteAt(left.first(piece.bytes), piece.offset); error != 0) {
        return error;
      }
      left = left.subspan(piece.bytes);
    }
    return 0;
  }

  TierData& data_;
  Cursor cursor_;
  Chunk chunk_;
  std::size_t filled_ = 0;
  Hasher64 hasher_;
};

Result<std::uint64_t> TierData::Write(std::span<const UnitRun> runs, const TierParts& parts) {
  struct stat stat = {};
  if (::fstat(file_.get(), &stat) == 0 && stat.st_nlink == 0) {
    return Status(StatusCode::kUnavailable, "writing '" + path_ + "': the file was removed");
  }
  Writer writer(*this, runs);
  int error = 0;
  for (std::size_t i = 0; i < parts.size() && error == 0; ++i) error = writer.Add(parts[i]);
  if (error == 0) error = writer.Finish();
  if (error != 0) return TierIoError(-error, "writing '" + path_ + "'");
  return writer.hash();
}

int TierData::WriteAt(std::span<const std::byte> blocks, std::uint64_t offset) {
  if (direct()) {
    const int error = WriteFully(io_, direct_.get(), blocks, offset, kTierBlock);
    if (error != -EINVAL) return error;
    direct_refused_ = true;
  }
  const int error = WriteFully(io_, file_.get(), blocks, offset, 1);
  return error != 0 ? error : WriteBehind(offset, blocks.size());
}

int TierData::WriteBehind(std::uint64_t offset, std::uint64_t bytes) {
  const auto from = static_cast<off64_t>(offset);
  const auto size = static_cast<off64_t>(bytes);
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // File systems without it cache pages as they like; errors of the disk count.
  if (::sync_file_range(file_.get(), from, size, kAll) != 0 && (errno == EIO || errno == ENOSPC)) {
    return -errno;
  }
  (void)::posix_fadvise(file_.get(), from, size, POSIX_FADV_DONTNEED);
  return 0;
}

Result<std::uint64_t> TierData::Read(std::span<const UnitRun> runs, std::uint64_t bytes,
                                     std::span<std::byte> to) {
  const bool direct = this->direct();
  const std::uint64_t wanted = direct ? RoundUp(bytes, kTierBlock) : bytes;
  HEADRACE_CHECK(to.size() >= wanted);
  Cursor cursor(runs, unit_bytes_);
  std::uint64_t got = 0;
  while (got < wanted) {
    const Cursor::Piece piece = cursor.Next(wanted - got);
    const ssize_t n =
        ReadFully(io_, direct ? direct_.get() : file_.get(), to.subspan(got, piece.bytes),
                  piece.offset, direct ? kTierBlock : 1);
    if (n == -EINVAL && direct) {
      direct_refused_ = true;
      return Read(runs, bytes, to);
    }
    if (n < 0) return TierIoError(static_cast<int>(-n), "reading '" + path_ + "'");
    got += static_cast<std::uint64_t>(n);
    if (static_cast<std::uint64_t>(n) < piece.bytes) break;
  }
  return std::min(got, bytes);
}

Status TierData::Resize(bool clear, std::uint64_t bytes) {
  if ((clear && ::ftruncate(file_.get(), 0) != 0) ||
      ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) {
    return TierIoError(errno, "making '" + path_ + "' " + FormatBytes(bytes) + " large");
  }
  return Status();
}

}  // namespace headrace
