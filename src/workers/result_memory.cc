#include "workers/result_memory.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format/errors.h"
#include "base/units.h"

namespace headrace {
namespace {

// The batch that a training loop works on, and the one before it.
constexpr std::uint64_t kBatchesOfConsumer = 2;

// Where a process may have few addresses.
constexpr std::uint64_t kAddressesMin = kMiB;

// The machine's memory: room for addresses, none of which takes a page before it is written.
std::uint64_t PhysicalBytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

ResultMemory::~ResultMemory() {
  if (pool_ == nullptr) return;
  pool_->SetReleaseHook(nullptr);
  pool_->Retire();
}

std::size_t ResultMemory::BatchesMax() const {
  if (!is_limited()) return options_.batches_max;
  if (batch_bytes_ == 0) return 1;
  const std::uint64_t room = *options_.bytes / batch_bytes_;
  std::uint64_t batches = room - std::min(room, kBatchesOfConsumer);
  if (options_.twice) batches /= 2;
  return std::clamp<std::uint64_t>(batches, 1, options_.batches_max);
}

Result<std::shared_ptr<BufferPool>> ResultMemory::MakePool() const {
  if (is_limited()) return BufferPool::MakeShared(std::max<std::uint64_t>(*options_.bytes, 1));
  // Less where the process may not have as many addresses (ulimit -v, -f).
  auto made = BufferPool::MakeShared(PhysicalBytes());
  for (std::uint64_t bytes = PhysicalBytes() / 4; !made.ok() && bytes >= kAddressesMin;
       bytes /= 4) {
    made = BufferPool::MakeShared(bytes);
  }
  return made;
}

Result<bool> ResultMemory::Give(TransformedBatch& batch, bool beyond) {
  const std::uint64_t bytes = std::max<std::uint64_t>(batch.layout.bytes, 1);
  batch_bytes_ = std::max(batch_bytes_, BufferPool::ChargedBytes(bytes));
  if (pool_ == nullptr) {
    HEADRACE_ASSIGN_OR_RETURN(pool_, MakePool());
    pool_->SetReleaseHook(on_free_);
  }
  std::optional<Buffer> buffer = pool_->Acquire(bytes);
  if (!buffer.has_value()) {
    const BufferStats stats = pool_->stats();
    if (!beyond && (stats.used_bytes != 0 || stats.beyond_bytes != 0)) return false;
    buffer = pool_->AcquireBeyond(bytes);
    batch.beyond_budget = true;
  }
  if (!buffer.has_value()) {
    return ResourceExhausted("the system has no memory for a batch of {}", FormatBytes(bytes));
  }
  batch.memory = *std::move(buffer);
  return true;
}

void ResultMemory::Renew() {
  if (pool_ != nullptr) pool_->SetReleaseHook(nullptr);
  pool_ = nullptr;  // Its batches keep it.
}

void ResultMemory::ReturnFree() {
  if (pool_ != nullptr) pool_->ReturnFreePages();
}

BufferStats ResultMemory::stats() const {
  return pool_ == nullptr ? BufferStats() : pool_->stats();
}

}  // namespace headrace
