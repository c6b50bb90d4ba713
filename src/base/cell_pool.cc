#include "base/cell_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/process_id.h"
#include "base/units.h"

namespace headrace {
namespace {

constexpr std::uint32_t kEnd = 0xffff'ffff;
constexpr std::uint64_t kHugeFrom = 8 * kMiB;

void* MapBytes(std::uint64_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Best effort: without huge pages the first use only takes more page faults.
  if (bytes >= kHugeFrom) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

Result<std::shared_ptr<CellPool>> CellPool::Make(std::uint64_t capacity_units,
                                                 std::uint64_t unit_bytes) {
  if (!std::has_single_bit(unit_bytes) || capacity_units >= kEnd ||
      unit_bytes > ~std::uint64_t{0} / kEnd) {
    return Status(StatusCode::kInvalidArgument,
                  "memory for resident samples: got " + std::to_string(capacity_units) +
                      " cells of " + std::to_string(unit_bytes) +
                      " bytes, must be below 2^32 - 1 cells of a power of two");
  }
  std::shared_ptr<CellPool> pool(new CellPool(capacity_units, unit_bytes));
  HEADRACE_RETURN_IF_ERROR(pool->Map());
  return pool;
}

CellPool::CellPool(std::uint64_t capacity_units, std::uint64_t unit_bytes)
    : pid_(ProcessId()), capacity_units_(capacity_units), unit_bytes_(unit_bytes), free_(kEnd) {
  MutexLock lock(mutex_);
  stats_.unit_bytes = unit_bytes;
  stats_.capacity_units = capacity_units;
}

Status CellPool::Map() {
  if (capacity_units_ == 0) return Status();
  cells_ = static_cast<std::byte*>(MapBytes(capacity_units_ * unit_bytes_));
  next_ = static_cast<std::uint32_t*>(MapBytes(capacity_units_ * sizeof(std::uint32_t)));
  if (cells_ != nullptr && next_ != nullptr) return Status();
  return Status(StatusCode::kResourceExhausted,
                "mapping " + FormatBytes(capacity_units_ * unit_bytes_) +
                    " for resident samples: the system has no memory; lower memory=");
}

CellPool::~CellPool() {
  if (cells_ != nullptr) HEADRACE_CHECK(munmap(cells_, capacity_units_ * unit_bytes_) == 0);
  if (next_ != nullptr) {
    HEADRACE_CHECK(munmap(next_, capacity_units_ * sizeof(std::uint32_t)) == 0);
  }
  if (ProcessId() != pid_) return;
  MutexLock lock(mutex_);
  HEADRACE_CHECK(stats_.used_units == 0);
}

std::uint32_t CellPool::TakeCell() {
  if (free_ == kEnd) return fresh_++;
  const std::uint32_t cell = free_;
  free_ = next_[cell];
  return cell;
}

bool CellPool::Take(std::span<const std::uint32_t> units, std::span<CellRun> runs) {
  HEADRACE_CHECK(units.size() == runs.size());
  std::uint64_t sum = 0;
  for (const std::uint32_t each : units) sum += each;
  MutexLock lock(mutex_);
  if (sum > capacity_units_ - stats_.used_units) return false;
  stats_.used_units += sum;
  stats_.used_units_peak = std::max(stats_.used_units_peak, stats_.used_units);
  for (std::size_t i = 0; i < units.size(); ++i) {
    runs[i] = kNoCells;
    if (units[i] == 0) continue;
    std::uint32_t last = TakeCell();
    runs[i] = CellRun{last};
    for (std::uint32_t left = units[i] - 1; left > 0; --left) {
      const std::uint32_t cell = TakeCell();
      next_[last] = cell;
      last = cell;
    }
    next_[last] = kEnd;
  }
  return true;
}

void CellPool::Release(CellRun run) {
  HEADRACE_CHECK(run != kNoCells);
  std::uint32_t last = static_cast<std::uint32_t>(run);
  std::uint64_t count = 1;
  for (; next_[last] != kEnd; last = next_[last]) ++count;
  MutexLock lock(mutex_);
  HEADRACE_CHECK(count <= stats_.used_units);
  stats_.used_units -= count;
  next_[last] = free_;
  free_ = static_cast<std::uint32_t>(run);
}

template <typename Visit>
void CellPool::ForEachPiece(CellRun run, std::uint64_t offset, std::uint64_t size,
                            Visit visit) const {
  HEADRACE_CHECK(run != kNoCells);
  std::uint32_t cell = static_cast<std::uint32_t>(run);
  for (; offset >= unit_bytes_ && size > 0; offset -= unit_bytes_) {
    cell = next_[cell];
    HEADRACE_CHECK(cell != kEnd);
  }
  while (size > 0) {
    HEADRACE_CHECK(cell != kEnd);
    // Adjacent cells count as one piece.
    const std::uint32_t first = cell;
    std::uint64_t room = unit_bytes_ - offset;
    while (room < size && next_[cell] == cell + 1) {
      ++cell;
      room += unit_bytes_;
    }
    const std::uint64_t bytes = std::min(room, size);
    if (!visit(cells_ + first * unit_bytes_ + offset, bytes)) return;
    size -= bytes;
    offset = 0;
    cell = next_[cell];
  }
}

void CellPool::CopyIn(CellRun run, std::uint64_t offset, std::span<const std::byte> from) {
  const std::byte* source = from.data();
  ForEachPiece(run, offset, from.size(), [&](std::byte* memory, std::uint64_t bytes) {
    std::memcpy(memory, source, bytes);
    source += bytes;
    return true;
  });
}

void CellPool::CopyOut(CellRun run, std::uint64_t offset, std::span<std::byte> to) const {
  std::byte* target = to.data();
  ForEachPiece(run, offset, to.size(), [&](const std::byte* memory, std::uint64_t bytes) {
    std::memcpy(target, memory, bytes);
    target += bytes;
    return true;
  });
}

std::optional<std::span<const std::byte>> CellPool::View(CellRun run, std::uint64_t offset,
                                                         std::uint64_t size) const {
  std::span<const std::byte> view;
  ForEachPiece(run, offset, size, [&](const std::byte* memory, std::uint64_t bytes) {
    view = {memory, bytes};
    return false;
  });
  if (view.size() < size) return std::nullopt;
  return view;
}

void CellPool::VisitBytes(CellRun run, std::uint64_t offset, std::uint64_t size,
                          const std::function<void(std::span<const std::byte>)>& visit) const {
  ForEachPiece(run, offset, size, [&visit](const std::byte* memory, std::uint64_t bytes) {
    visit({memory, bytes});
    return true;
  });
}

CellStats CellPool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace headrace
