// EpochPlanner: what a loader's job reads from where, before it runs.

#include "runtime/epoch_plan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <optional>
#include <utility>

#include "index.h"
#include "module.h"
#include "runtime/planner.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

nb::list ReadsList(const ReadCounts& counts) {
  nb::list list;
  for (const auto& [bytes, reads] : counts) list.append(nb::make_tuple(bytes, reads));
  return list;
}

nb::object NextEpoch(EpochPlanner& planner) {
  std::optional<PlannedEpoch> epoch;
  {
    const nb::gil_scoped_release released;
    epoch = planner.Next();
  }
  if (!epoch.has_value()) return nb::none();
  nb::list tiers;
  for (const PlannedEpoch::TierPlan& tier : epoch->tiers) {
    tiers.append(nb::make_tuple(ReadsList(tier.reads), ReadsList(tier.writes)));
  }
  nb::dict dict;
  dict["epoch"] = epoch->epoch;
  dict["samples"] = epoch->samples;
  dict["sample_bytes"] = epoch->sample_bytes;
  dict["storage"] = ReadsList(epoch->storage);
  dict["tiers"] = tiers;
  dict["at_peers"] = epoch->at_peers;
  return dict;
}

}  // namespace

void BindPlan(nb::module_& module) {
  nb::class_<EpochPlanner>(module, "EpochPlanner", "Plans a loader's job epoch by epoch.")
      .def(nb::new_([](const PyIndex& index, const LoaderOptions& options) {
             return ValueOrThrow([&] {
               const nb::gil_scoped_release released;
               return EpochPlanner::Make(index.index, options);
             }());
           }),
           nb::arg("index"), nb::arg("options"))
      .def("next", &NextEpoch, nb::sig("def next(self) -> dict[str, Any] | None"),
           "The next epoch: reads as (bytes, count) from storage, and of each tier read and "
           "written; None after the last.")
      .def_prop_ro("steps_per_epoch",
                   [](const EpochPlanner& self) { return self.job().steps_per_epoch; })
      .def_prop_ro("threads", [](const EpochPlanner& self) { return self.job().options.threads; })
      .def_prop_ro("reads_blocks",
                   [](const EpochPlanner& self) { return self.job().planner->reads_blocks(); });
}

}  // namespace headrace::bindings
