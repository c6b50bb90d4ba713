#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "headrace/status.h"
#include "tier/tier_io.h"
#include "tier/tier_text.h"
#include "tier/unit_space.h"

namespace headrace {

// The data file of a tier: payloads in runs of units, read and written past the page cache if the
// file system supports it. A buffered write is flushed and dropped from the cache immediately, so
// that a tier does not take the memory of others, and the writer sees the disk's errors.
//
// Memory: a buffer of 1 MiB for each write in progress.
// Thread safety: every method may be called from any thread.
class TierData {
 public:
  // `direct`: a descriptor of the same file opened with O_DIRECT; invalid if there is none. `path`
  // is for messages.
  TierData(std::string path, UniqueFd file, UniqueFd direct, std::uint64_t unit_bytes, TierIo& io);

  // Writes `parts`, one after the other, and zeros up to the next block; returns their Hash64.
  //
  // Errors: Unavailable  the medium failed or is full, or the file was removed
  Result<std::uint64_t> Write(std::span<const UnitRun> runs, const TierParts& parts);

  // Reads `bytes` into the beginning of `to`, which has room for whole blocks. Returns how many
  // there were: fewer if the file is too short.
  //
  // Errors: Unavailable  the medium failed
  Result<std::uint64_t> Read(std::span<const UnitRun> runs, std::uint64_t bytes,
                             std::span<std::byte> to);

  // Frees all disk space, if `clear`; then sets the file's size.
  Status Resize(bool clear, std::uint64_t bytes);

  [[nodiscard]] int fd() const { return file_.get(); }
  [[nodiscard]] bool direct() const { return direct_ && !direct_refused_; }

 private:
  using Chunk = std::unique_ptr<std::byte, void (*)(void*)>;
  class Writer;

  Chunk TakeChunk() HEADRACE_LOCKS_EXCLUDED(mutex_);
  void GiveChunk(Chunk chunk) HEADRACE_LOCKS_EXCLUDED(mutex_);
  // Returns 0 or -errno.
  int WriteAt(std::span<const std::byte> blocks, std::uint64_t offset);
  int WriteBehind(std::uint64_t offset, std::uint64_t bytes);

  const std::string path_;
  const UniqueFd file_;
  const UniqueFd direct_;
  const std::uint64_t unit_bytes_;
  TierIo& io_;
  std::atomic<bool> direct_refused_ = false;  // opened, but its reads and writes fail with EINVAL

  Mutex mutex_;
  std::vector<Chunk> chunks_ HEADRACE_GUARDED_BY(mutex_);  // not in use
};

}  // namespace headrace
