#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mutex.h"
#include "tier/tier_io.h"

namespace headrace {

// System calls that fail on command, or stop altogether at a given write, like a machine that loses
// power.
//
// Thread safety: every method may be called from any thread.
class FaultyIo final : public TierIo {
 public:
  // From now on such calls return -`error`; 0: they work again.
  void FailReads(int error) { read_error_ = error; }
  void FailWrites(int error) { write_error_ = error; }
  void FailSyncs(int error) { sync_error_ = error; }
  void FailRenames(int error) { rename_error_ = error; }

  // Every second call is interrupted; the others transfer one block, or byte, at a time.
  void MakePetty() { petty_ = true; }

  // The next `writes` writes and renames succeed, the one after that is done in part, later ones
  // not at all.
  void DieAfter(std::uint64_t writes, double part) HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] bool dead() const HEADRACE_LOCKS_EXCLUDED(mutex_);
  [[nodiscard]] std::uint64_t writes() const HEADRACE_LOCKS_EXCLUDED(mutex_);

  ssize_t Read(int fd, std::span<std::byte> to, std::uint64_t offset) override;
  ssize_t Write(int fd, std::span<const std::byte> from, std::uint64_t offset) override
      HEADRACE_LOCKS_EXCLUDED(mutex_);
  int Sync(int fd) override;
  int Rename(int folder, const char* from, const char* to) override HEADRACE_LOCKS_EXCLUDED(mutex_);

 private:
  // How much of a call's bytes it may transfer, except for interrupted calls.
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
