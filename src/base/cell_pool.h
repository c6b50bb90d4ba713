#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "headrace/part_stats.h"
#include "headrace/status.h"

namespace headrace {

// The cells of one sample in a CellPool: the number of the first. The pool's table links the
// others.
enum class CellRun : std::uint32_t {};

// No cells.
inline constexpr CellRun kNoCells{0xffff'ffff};

// A pool of equal cells for samples that stay in memory for a while. A sample takes as many cells
// as it needs, wherever they are, so no memory is lost to fragmentation and a budget counted in
// cells holds for any mix of sizes. The cells of one sample are adjacent where that costs nothing:
// always, if all samples have one size.
//
// Memory: capacity * unit_bytes, and 4 bytes a cell for the table; pages become resident on first
// use and stay resident.
//
// Thread safety: every method may be called from any thread; the bytes of one run from one thread
// at a time.
// Ownership: the caller of Take() releases its runs with Release(), all of them before destruction.
// Fork: a child does not touch the memory.
class CellPool {
 public:
  // Errors: InvalidArgument    2^32 - 1 cells or more, or a cell size that is not a power of two
  //         ResourceExhausted  the system refuses the mapping
  static Result<std::shared_ptr<CellPool>> Make(std::uint64_t capacity_units,
                                                std::uint64_t unit_bytes);
  // Memory of a pool with this capacity, its table included.
  static std::uint64_t ChargedBytes(std::uint64_t capacity_units, std::uint64_t unit_bytes) {
    return capacity_units * (unit_bytes + sizeof(std::uint32_t));
  }
  ~CellPool();
  CellPool(const CellPool&) = delete;
  CellPool& operator=(const CellPool&) = delete;

  // Cells that `bytes` take: at least one.
  [[nodiscard]] std::uint64_t Units(std::uint64_t bytes) const {
    return bytes == 0 ? 1 : (bytes - 1) / unit_bytes_ + 1;
  }
  [[nodiscard]] std::uint64_t capacity_units() const { return capacity_units_; }

  // Takes units[i] cells for each i and stores them in runs[i] (kNoCells for 0 units). Takes all of
  // them or, if there are too few cells, none and returns false.
  bool Take(std::span<const std::uint32_t> units, std::span<CellRun> runs);

  void Release(CellRun run);

  // Copies bytes of a run, from `offset` on. The range must lie inside the run.
  void CopyIn(CellRun run, std::uint64_t offset, std::span<const std::byte> from);
  void CopyOut(CellRun run, std::uint64_t offset, std::span<std::byte> to) const;
  // The range as one span; std::nullopt if its cells are not adjacent.
  [[nodiscard]] std::optional<std::span<const std::byte>> View(CellRun run, std::uint64_t offset,
                                                               std::uint64_t size) const;

  // Calls visit(bytes) for each piece of a range of a run, in order.
  void VisitBytes(CellRun run, std::uint64_t offset, std::uint64_t size,
                  const std::function<void(std::span<const std::byte>)>& visit) const;

  // Prefetches the beginning of a run into the processor's cache, for a copy that follows.
  void Prefetch(CellRun run) const {
    const auto cell = static_cast<std::uint32_t>(run);
    __builtin_prefetch(next_ + cell, /*rw=*/1);
    __builtin_prefetch(cells_ + cell * unit_bytes_);
    __builtin_prefetch(cells_ + cell * unit_bytes_ + 64);
  }

  [[nodiscard]] CellStats stats() const;

 private:
  CellPool(std::uint64_t capacity_units, std::uint64_t unit_bytes);
  Status Map();
  std::uint32_t TakeCell() HEADRACE_LOCKS_REQUIRED(mutex_);
  // Calls visit(memory, bytes) for each piece of a range of a run, until it returns false.
  template <typename Visit>
  void ForEachPiece(CellRun run, std::uint64_t offset, std::uint64_t size, Visit visit) const;

  const pid_t pid_;  // the process whose threads use the lock below
  const std::uint64_t capacity_units_;
  const std::uint64_t unit_bytes_;
  std::byte* cells_ = nullptr;
  // For each cell the next one of its run, or of the free list; kEnd at the end of a run. The
  // entries of a run belong to the owner of the run; those of free cells are guarded by mutex_.
  std::uint32_t* next_ = nullptr;

  mutable Mutex mutex_;
  CellStats stats_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t fresh_ HEADRACE_GUARDED_BY(mutex_) = 0;  // cells from here on were never taken
  // Released cells: last in, first out, so that runs of one size stay whole and pages stay warm.
  std::uint32_t free_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
