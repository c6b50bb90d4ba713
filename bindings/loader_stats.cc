#include "loader_stats.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "convert/plain.h"

namespace headrace::bindings {

namespace nb = nanobind;

nb::dict StepTimesDict(const std::vector<StepTime>& steps) {
  nb::dict dict;
  const auto add = [&](const std::string& name, auto value) {
    std::vector<std::int64_t> column;
    column.reserve(steps.size());
    for (const StepTime& step : steps) column.push_back(static_cast<std::int64_t>(value(step)));
    dict[ToName(name)] = ToArray(std::move(column));
  };
  const auto column = [&](const auto& member) {
    if constexpr (std::is_same_v<decltype(member.pointer), StallTimes StepTime::*>) {
      for (std::size_t i = 0; i < kStallCauses; ++i) {
        add(std::string(kStallCauseNames[i]) + "_ns",
            [&](const StepTime& step) { return (step.*member.pointer)[i]; });
      }
    } else {
      add(member.name, [&](const StepTime& step) { return step.*member.pointer; });
    }
  };
  const auto members = MembersOf(static_cast<const StepTime*>(nullptr));
  std::apply([&](const auto&... each) { (column(each), ...); }, members);
  return dict;
}

nb::dict StatsDict(LoaderStats stats) {
  stats.engine.substitutions.clear();               // `delivered` has those that people see.
  stats.figures.resize(stats.engine.lanes.size());  // A node process may say anything.
  nb::dict dict = nb::borrow<nb::dict>(Plain(stats));
  dict["thetas"] = Plain(kImbalanceThetas);
  return dict;
}

}  // namespace headrace::bindings
