#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mutex.h"
#include "tier/tier_io.h"

namespace headrace {

// System calls that fail when told, or stop altogether at a given write, as a machine that dies
// does.
//
// Thread safety: every method may be called from any thread.
class FaultyIo final : public TierIo {
 public:
  // From now on such calls give -`error`, 0: work again.
  void FailReads(int error) { read_error_ = error; }
  void FailWrites(int error) { write_error_ = error; }
  void FailSyncs(int error) { sync_error_ = error; }
  void FailRenames(int error) { rename_error_ = error; }

  // Every second call is interrupted, the others do a block, or a byte, at a time.
  void MakePetty() { petty_ = true; }

  // The first `writes` of writes and renames from now on are done, of the next write a part, of all
  // later ones nothing.
  void DieAfter(std::uint64_t writes, double part) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool dead() const HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::uint64_t writes() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  ssize_t Read(int fd, std::span<std::byte> to, std::uint64_t offset) override;
  ssize_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  int Sync(int fd) override;
  int Rename(int folder, const char* from, const char* to) override HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // How much of a call's bytes it may do, interrupted calls apart.
  [[nodiscard]] bool Interrupted();
  [[nodiscard]] std::size_t Allowed(int fd, std::size_t bytes) const;

  std::atomic<int> read_error_ = 0;
  std::atomic<int> write_error_ = 0;
  std::atomic<int> sync_error_ = 0;
  std::atomic<int> rename_error_ = 0;
  std::atomic<bool> petty_ = false;
  std::atomic<std::uint64_t> calls_ = 0;

  mutable Mutex mutex_;
  std::uint64_t writes_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::uint64_t writes_max_ HEADRACE_GUARDED_BY(mutex_) = ~std::uint64_t{0};
  double part_ HEADRACE_GUARDED_BY(mutex_) = 0;
};

}  // namespace headrace
