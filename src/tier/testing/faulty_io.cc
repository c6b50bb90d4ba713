#include "tier/testing/faulty_io.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace headrace {

void FaultyIo::DieAfter(std::uint64_t writes, double part) {
  MutexLock lock(mutex_);
  writes_max_ = writes_ + writes;
  part_ = part;
}

bool FaultyIo::dead() const {
  MutexLock lock(mutex_);
  return writes_ > writes_max_;
}

std::uint64_t FaultyIo::writes() const {
  MutexLock lock(mutex_);
  return writes_;
}

bool FaultyIo::Interrupted() { return petty_ && calls_++ % 2 == 0; }

std::size_t FaultyIo::Allowed(int fd, std::size_t bytes) const {
  if (!petty_) return bytes;
  const bool direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  return std::min<std::size_t>(bytes, direct ? kTierBlock : bytes / 2 + 1);
}

ssize_t FaultyIo::Read(int fd, std::span<std::byte> to, std::uint64_t offset) {
  if (read_error_ != 0) return -read_error_;
  if (Interrupted()) return -EINTR;
  return TierIo::Read(fd, to.first(Allowed(fd, to.size())), offset);
}

ssize_t FaultyIo::Write(int fd, std::span<const std::byte> from, std::uint64_t offset) {
  if (write_error_ != 0) return -write_error_;
  if (Interrupted()) return -EINTR;
  from = from.first(Allowed(fd, from.size()));
  MutexLock lock(mutex_);
  const std::uint64_t number = writes_++;
  if (number < writes_max_) return TierIo::Write(fd, from, offset);
  if (number == writes_max_) {
    const bool direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    const auto part = static_cast<std::size_t>(part_ * static_cast<double>(from.size()));
    (void)TierIo::Write(fd, from.first(direct ? part / kTierBlock * kTierBlock : part), offset);
  }
  return -EIO;
}

int FaultyIo::Sync(int fd) {
  if (sync_error_ != 0) return -sync_error_;
  return TierIo::Sync(fd);
}

int FaultyIo::Rename(int folder, const char* from, const char* to) {
  if (rename_error_ != 0) return -rename_error_;
  MutexLock lock(mutex_);
  if (writes_++ >= writes_max_) return -EIO;
  return TierIo::Rename(folder, from, to);
}

}  // namespace headrace
