#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace headrace {

// Consecutive units of a data file.
struct UnitRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const UnitRun&, const UnitRun&) = default;
};

// The free units of a data file. Returns the shortest run that is long enough or, if there is none,
// several runs, the longest first: so fragmentation wastes nothing, and entries are contiguous
// where possible.
//
// Memory: about 100 bytes a gap.
// Cost: logarithmic in the number of gaps.
// Thread safety: none.
class UnitSpace {
 public:
  explicit UnitSpace(std::uint32_t units);

  // Runs of `units` in all, which is not 0; std::nullopt, and takes nothing, if fewer are free.
  std::optional<std::vector<UnitRun>> Take(std::uint64_t units);

  // Takes all of `runs`; returns false, and takes nothing, unless each lies inside and every unit
  // is free and listed once.
  bool Reserve(std::span<const UnitRun> runs);

  // Frees runs that were taken.
  void Free(std::span<const UnitRun> runs);

 private:
  bool ReserveOne(UnitRun run);
  void FreeOne(UnitRun run);
  void Add(UnitRun gap);
  void Remove(UnitRun gap);

  std::uint64_t free_units_ = 0;
  std::map<std::uint32_t, std::uint32_t> by_first_;  // no two gaps are adjacent
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_count_;
};

}  // namespace headrace
