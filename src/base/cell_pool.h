#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "base/status.h"

namespace headrace {

// A run of cells out of a CellPool: its first. The others follow in the pool's own table.
enum class CellRun : std::uint32_t {};

// No cells.
inline constexpr CellRun kNoCells{0xffff'ffff};

// A budget of equal cells, for samples that stay in memory a while. A sample takes as many cells as
// hold it, wherever they lie: so nothing is ever lost to gaps between samples, and a budget that is
// kept in cells is kept in memory, whatever the sizes. Cells of one sample are neighbours as long
// as that costs nothing: always, where all samples are of one size.
//
// Memory: capacity * unit_bytes, and 4 bytes a cell for the table; pages become resident when they
// are first used, and stay.
//
// Thread safety: every method may be called from any thread; the bytes of one run from one at a
// time.
// Ownership: who took a run gives it back with Release(). All must be back before destruction.
// Fork: a child leaves the memory as it is.
class CellPool {
 public:
  struct Stats {
    std::uint64_t unit_bytes = 0;  // of a cell
    std::uint64_t capacity_units = 0;
    std::uint64_t used_units = 0;
    std::uint64_t used_units_peak = 0;
  };

  // Errors: InvalidArgument    2^32 - 1 cells or more, or a cell that is not a power of two
  //         ResourceExhausted  the system gives no such mapping
  static Result<std::shared_ptr<CellPool>> Make(std::uint64_t capacity_units,
                                                std::uint64_t unit_bytes);
  // Memory that a pool of so many cells takes, its table included.
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

  // A run of units[i] cells in runs[i], for each i (kNoCells for none); or none at all, and false,
  // while there are not enough for all.
  bool Take(std::span<const std::uint32_t> units, std::span<CellRun> runs);

  void Release(CellRun run);

  // Bytes of a run, from `offset` on. The range must lie inside.
  void CopyIn(CellRun run, std::uint64_t offset, std::span<const std::byte> from);
  void CopyOut(CellRun run, std::uint64_t offset, std::span<std::byte> to) const;
  // Where they lie, if they lie in one piece.
  [[nodiscard]] std::optional<std::span<const std::byte>> View(CellRun run, std::uint64_t offset,
                                                               std::uint64_t size) const;

  // Calls visit(bytes) for each piece of a range of a run, in order.
  void VisitBytes(CellRun run, std::uint64_t offset, std::uint64_t size,
                  const std::function<void(std::span<const std::byte>)>& visit) const;

  // Has the processor fetch the beginning of a run, which is about to be copied and released.
  void Prefetch(CellRun run) const {
    const auto cell = static_cast<std::uint32_t>(run);
    __builtin_prefetch(next_ + cell, /*rw=*/1);
    __builtin_prefetch(cells_ + cell * unit_bytes_);
    __builtin_prefetch(cells_ + cell * unit_bytes_ + 64);
  }

  [[nodiscard]] Stats stats() const;

 private:
  CellPool(std::uint64_t capacity_units, std::uint64_t unit_bytes);
  Status Map();
  std::uint32_t TakeCell() HEADRACE_LOCKS_REQUIRED(mutex_);
  // Calls visit(memory, bytes) for each piece of a range of a run, as long as it says true.
  template <typename Visit>
  void ForEachPiece(CellRun run, std::uint64_t offset, std::uint64_t size, Visit visit) const;

  const pid_t pid_;  // of the process whose threads use the lock below
  const std::uint64_t capacity_units_;
  const std::uint64_t unit_bytes_;
  std::byte* cells_ = nullptr;
  // By cell: the next of its run, or of the list of free ones; kEnd at the end of a run. The
  // entries of a run belong to whoever has the run; those of free cells are guarded by mutex_.
  std::uint32_t* next_ = nullptr;

  mutable Mutex mutex_;
  Stats stats_ HEADRACE_GUARDED_BY(mutex_);
  std::uint32_t fresh_ HEADRACE_GUARDED_BY(mutex_) = 0;  // cells from here on were never taken
  // Given back: last in, first out, so that runs of one size stay whole and pages are warm.
  std::uint32_t free_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace headrace
