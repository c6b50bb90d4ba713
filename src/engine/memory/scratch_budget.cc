#include "engine/memory/scratch_budget.h"

#include <algorithm>

#include "base/check.h"
#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {

ScratchLease& ScratchLease::operator=(ScratchLease&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  budget_ = std::move(other.budget_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void ScratchLease::Reset() {
  if (budget_ != nullptr) budget_->Release(bytes_);
  budget_.reset();
  bytes_ = 0;
}

std::shared_ptr<ScratchBudget> ScratchBudget::Make(const Options& options) {
  return std::shared_ptr<ScratchBudget>(new ScratchBudget(options));
}

ScratchBudget::ScratchBudget(const Options& options)
    : options_(options),
      thread_bytes_(std::min(kThreadBytesMax, options.capacity_bytes / 2 / options.threads)) {
  HEADRACE_CHECK(options.threads > 0);
  stats_.capacity_bytes = options.capacity_bytes;
  stats_.used_bytes = stats_.used_bytes_peak = thread_bytes_ * options.threads;
}

ScratchLimit ScratchBudget::small() const {
  return {.bytes_max = thread_bytes_ / 2, .retained_bytes_max = thread_bytes_ / 2};
}

Status ScratchBudget::Check(std::uint64_t bytes) const {
  const std::uint64_t most = options_.capacity_bytes - thread_bytes_ * options_.threads;
  if (bytes <= most) return Status();
  const auto capacity = static_cast<double>(bytes + kThreadBytesMax * options_.threads);
  const auto memory = static_cast<std::uint64_t>(capacity * options_.memory_bytes_per_byte);
  return InvalidArgument(
      "memory= leaves {} for one decode; raise memory= to at least {}, make the sample smaller "
      "(compressed ones, progressive JPEG, interlaced PNG and WebP are whole in memory), or leave "
      "it "
      "out with "
      "on_error=\"substitute\"",
      FormatBytes(most), FormatBytes(RoundUp(memory, kMiB)));
}

std::optional<ScratchLease> ScratchBudget::Acquire(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > stats_.capacity_bytes - stats_.used_bytes) return std::nullopt;
  stats_.used_bytes += bytes;
  stats_.used_bytes_peak = std::max(stats_.used_bytes_peak, stats_.used_bytes);
  ++stats_.large_count;
  ScratchLease lease;
  lease.budget_ = shared_from_this();
  lease.bytes_ = bytes;
  return lease;
}

void ScratchBudget::Release(std::uint64_t bytes) {
  MutexLock lock(mutex_);
  stats_.used_bytes -= bytes;
}

ScratchStats ScratchBudget::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace
