#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace headrace {

// Units of a data file that follow each other.
struct UnitRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  friend bool operator==(const UnitRun&, const UnitRun&) = default;
};

// Which units of a data file are free. Gives one run where one is long enough, the shortest such;
// several where none is, the longest first: so nothing is lost to gaps, and what can lie in one
// piece does.
//
// Memory: about 100 bytes a gap. Cost: a logarithm of the gaps.
// Thread safety: none.
class UnitSpace {
 public:
  explicit UnitSpace(std::uint32_t units);

  [[nodiscard]] std::uint64_t free_units() const { return free_units_; }

  // Runs of `units` in all, which is not 0; nothing, and nothing taken: fewer are free.
  std::optional<std::vector<UnitRun>> Take(std::uint64_t units);

  // Takes all of `runs`; false, and takes nothing, unless each lies inside and every unit is free
  // and named once.
  bool Reserve(std::span<const UnitRun> runs);

  // Runs that were taken.
  void Free(std::span<const UnitRun> runs);

 private:
  bool ReserveOne(UnitRun run);
  void FreeOne(UnitRun run);
  void Add(UnitRun gap);
  void Remove(UnitRun gap);

  std::uint64_t free_units_ = 0;
  std::map<std::uint32_t, std::uint32_t> by_first_;  // no two gaps touch
  std::set<std::pair<std::uint32_t, std::uint32_t>> by_count_;
};

}  // namespace headrace
