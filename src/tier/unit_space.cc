#include "tier/unit_space.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace headrace {

UnitSpace::UnitSpace(std::uint32_t units) {
  if (units > 0) Add({0, units});
}

void UnitSpace::Add(UnitRun gap) {
  by_first_.emplace(gap.first, gap.count);
  by_count_.emplace(gap.count, gap.first);
  free_units_ += gap.count;
}

void UnitSpace::Remove(UnitRun gap) {
  by_first_.erase(gap.first);
  by_count_.erase({gap.count, gap.first});
  free_units_ -= gap.count;
}

std::optional<std::vector<UnitRun>> UnitSpace::Take(std::uint64_t units) {
  HEADRACE_CHECK(units > 0);
  if (units > free_units_) return std::nullopt;
  std::vector<UnitRun> runs;
  while (units > 0) {
    const auto wanted = static_cast<std::uint32_t>(units);  // No more than are free.
    auto found = by_count_.lower_bound({wanted, 0});
    if (found == by_count_.end()) found = std::prev(found);
    const UnitRun gap = {found->second, found->first};
    const std::uint32_t count = std::min(gap.count, wanted);
    Remove(gap);
    if (gap.count > count) Add({gap.first + count, gap.count - count});
    runs.push_back({gap.first, count});
    units -= count;
  }
  return runs;
}

bool UnitSpace::Reserve(std::span<const UnitRun> runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (ReserveOne(runs[i])) continue;
    Free(runs.first(i));
    return false;
  }
  return true;
}

bool UnitSpace::ReserveOne(UnitRun run) {
  if (run.count == 0) return false;
  auto found = by_first_.upper_bound(run.first);
  if (found == by_first_.begin()) return false;
  found = std::prev(found);
  const UnitRun gap = {found->first, found->second};
  const std::uint32_t lead = run.first - gap.first;
  if (lead >= gap.count || run.count > gap.count - lead) return false;
  Remove(gap);
  if (lead > 0) Add({gap.first, lead});
  const std::uint32_t rest = gap.count - lead - run.count;
  if (rest > 0) Add({run.first + run.count, rest});
  return true;
}

void UnitSpace::Free(std::span<const UnitRun> runs) {
  for (const UnitRun run : runs) FreeOne(run);
}

void UnitSpace::FreeOne(UnitRun run) {
  const auto after = by_first_.lower_bound(run.first);
  if (after != by_first_.end()) {
    const UnitRun gap = {after->first, after->second};
    HEADRACE_CHECK(run.count <= gap.first - run.first);
    if (run.first + run.count == gap.first) {
      Remove(gap);
      run.count += gap.count;
    }
  }
  const auto next = by_first_.lower_bound(run.first);
  if (next != by_first_.begin()) {
    const auto before = std::prev(next);
    const UnitRun gap = {before->first, before->second};
    HEADRACE_CHECK(gap.count <= run.first - gap.first);
    if (gap.first + gap.count == run.first) {
      Remove(gap);
      run = {gap.first, gap.count + run.count};
    }
  }
  Add(run);
}

}  // namespace headrace
