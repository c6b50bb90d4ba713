#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "codec/codec.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

class ScratchBudget;

// The scratch memory of one large decode. The destructor gives it back, on any thread.
class ScratchLease {
 public:
  ScratchLease() = default;
  ~ScratchLease() { Reset(); }
  ScratchLease(ScratchLease&& other) noexcept { *this = std::move(other); }
  ScratchLease& operator=(ScratchLease&& other) noexcept;

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  void Reset();

 private:
  friend class ScratchBudget;
  std::shared_ptr<ScratchBudget> budget_;
  std::uint64_t bytes_ = 0;
};

// The budget for scratch memory: what decodes need beside their input and their rows. Codecs report
// it for each decode (ScratchLimit). A part is reserved for each thread that decodes: usual samples
// need no more, and need not ask. Large decodes share the rest.
//
// Thread safety: every method may be called from any thread.
class ScratchBudget : public std::enable_shared_from_this<ScratchBudget> {
 public:
  // Most that is reserved for a thread: half for its decode, half to keep for the next.
  static constexpr std::uint64_t kThreadBytesMax = std::uint64_t{2} << 20;

  struct Options {
    std::uint64_t capacity_bytes = 0;
    std::uint32_t threads = 1;  // that may decode at once
    // Bytes of memory= that yield one byte of capacity. For messages.
    double memory_bytes_per_byte = 1;
  };

  static std::shared_ptr<ScratchBudget> Make(const Options& options);

  // The limit of a decode that does not ask. Any thread.
  [[nodiscard]] ScratchLimit small() const;

  // OK if a large decode of `bytes` can ever get them. Otherwise InvalidArgument, an error of the
  // sample that says how much there is, and what to do.
  [[nodiscard]] Status Check(std::uint64_t bytes) const;

  // Memory for a large decode; nothing while others hold it.
  std::optional<ScratchLease> Acquire(std::uint64_t bytes);

  [[nodiscard]] ScratchStats stats() const;

 private:
  friend class ScratchLease;
  explicit ScratchBudget(const Options& options);
  void Release(std::uint64_t bytes);

  const Options options_;
  const std::uint64_t thread_bytes_;
  mutable Mutex mutex_;
  ScratchStats stats_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
