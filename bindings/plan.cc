// EpochPlanner: what a loader's job reads from where, before it runs; RankBatches: which samples a
// rank gets; and schedules of a node's ranks.

#include "loader/planning/epoch_plan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/format/errors.h"
#include "base/mutex.h"
#include "convert/expected_inflation.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "engine/loop/engine_options.h"
#include "gil/gil.h"
#include "index.h"
#include "loader/config/loader_config.h"
#include "loader/config/resolved_order.h"
#include "loader/planning/rank_batches.h"
#include "loader/planning/reuse_distances.h"
#include "loader/planning/schedules.h"
#include "loader/session/lane_schedule.h"
#include "module.h"
#include "plan/placement/counted/frequency_theory.h"
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
    const GilRelease released;
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
  dict["peers"] = ReadsList(epoch->peers);
  dict["at_peers"] = epoch->at_peers;
  return dict;
}

nb::object InflationOf(const EpochPlanner& planner) {
  return ToObject(ValueOrThrow([&] {
    const GilRelease released;
    return planner.Inflation();
  }()));
}

nb::dict ReuseDict(const PyIndex& index, const LoaderOptions& options, std::uint64_t epochs) {
  const ReuseDistances counts = ValueOrThrow([&] {
    const GilRelease released;
    return CountReuse(index.index, options, epochs);
  }());
  nb::dict dict;
  dict["of"] = counts.of_blocks ? "blocks" : "samples";
  dict["steps"] = counts.steps;
  dict["first"] = counts.first;
  dict["same_step"] = counts.same_step;
  dict["bins"] = nb::list(nb::cast(counts.bins));
  return dict;
}

// RankBatches, for any thread.
class PyRankBatches {
 public:
  // `lane`: the rank's place among the ranks that share its engine, and their number. `start`: an
  // epoch and a step.
  PyRankBatches(const PyIndex& index, const LoaderOptions& options, const nb::dict& parameters,
                std::pair<std::uint32_t, std::uint32_t> lane,
                std::pair<std::uint64_t, std::uint64_t> start) {
    LoaderOptions wanted = options;
    wanted.order.parameters = ToOrderParameters(parameters);
    Result<std::unique_ptr<RankBatches>> made = [&] {
      const GilRelease released;
      return RankBatches::Make(index.index, std::move(wanted),
                               {.place = lane.first, .count = lane.second},
                               {.epoch = start.first, .step = start.second});
    }();
    std::unique_ptr<RankBatches> batches = ValueOrThrow(std::move(made));
    MutexLock lock(mutex_);
    batches_ = std::move(batches);
  }

  // (epoch, step, whether it ends the epoch, samples); None after the last.
  nb::object Next() {
    std::optional<RankBatches::Batch> batch;
    {
      const GilRelease released;
      MutexLock lock(mutex_);
      batch = batches_->Next();
    }
    if (!batch.has_value()) return nb::none();
    return nb::make_tuple(batch->epoch, batch->step, batch->ends_epoch,
                          nb::cast(std::move(batch->samples)));
  }

 private:
  Mutex mutex_;
  std::unique_ptr<RankBatches> batches_ HEADRACE_GUARDED_BY(mutex_);
};

// What follows from numbers alone, and the sizes of an engine that has no options.
void BindPlanFigures(nb::module_& module) {
  module.def(
      "used_more_often",
      [](std::uint64_t epochs, std::uint64_t nodes, double times) {
        if (epochs < 1 || nodes < 1 || !(times >= 1)) {
          ThrowStatus(InvalidArgument(
              "used_more_often: got {} epochs, {} nodes, {} times the mean; must be at least 1",
              epochs, nodes, times));
        }
        return FrequentShare(epochs, nodes, times - 1);
      },
      nb::arg("epochs"), nb::arg("nodes"), nb::arg("times"),
      "The share of samples that a node uses more than `times` the mean, epochs / nodes, if each "
      "epoch gives each sample to a node at random.");
  const EngineOptions engine;
  module.attr("reads_in_flight") = engine.reads_in_flight_max;
  module.attr("block_reads_in_flight") = StoreNeeds().block_reads_max;
  module.attr("joined_read_bytes") = engine.coalesce_bytes_max;
  module.attr("block_read_bytes") = engine.block_read_bytes_max;
  module.def(
      "sample_reads_in_flight",
      [](std::uint64_t read_bytes) { return SampleReadsInFlight(StoreNeeds(), read_bytes); },
      nb::arg("read_bytes"), "Reads of a loader that reads samples of this mean size.");
}

void BindEpochPlanner(nb::module_& module) {
  nb::class_<EpochPlanner>(module, "EpochPlanner", "Plans a loader's job epoch by epoch.")
      .def(nb::new_([](const PyIndex& index, const LoaderOptions& options) {
             return ValueOrThrow([&] {
               const GilRelease released;
               return EpochPlanner::Make(index.index, options);
             }());
           }),
           nb::arg("index"), nb::arg("options"))
      .def("next", &NextEpoch, nb::sig("def next(self) -> dict[str, Any] | None"),
           "The next epoch: reads as (bytes, count) from storage, and of each tier read and "
           "written; None after the last.")
      .def_prop_ro("steps_per_epoch",
                   [](const EpochPlanner& self) { return self.config().steps_per_epoch; })
      .def_prop_ro("threads",
                   [](const EpochPlanner& self) { return self.config().options.threads; })
      .def_prop_ro("reads_in_flight",
                   [](const EpochPlanner& self) { return self.config().reads_in_flight; })
      .def_prop_ro("reads_blocks",
                   [](const EpochPlanner& self) { return self.config().order->reads_blocks(); })
      .def_prop_ro(
          "request_bytes_max",
          [](const EpochPlanner& self) { return self.config().requests.bytes_max; },
          "A longer read from storage is several requests; 0: none is.")
      .def_prop_ro(
          "order_parameters",
          [](const EpochPlanner& self) {
            return bindings::ToDict(self.config().order->parameters());
          },
          nb::sig("def order_parameters(self) -> dict[str, int | str]"))
      .def_prop_ro("expected_inflation", &InflationOf,
                   nb::sig("def expected_inflation(self) -> dict[str, float | None] | None"));
}

}  // namespace

void BindPlan(nb::module_& module) {
  nb::class_<PyRankBatches>(module, "RankBatches",
                            "The samples of a rank's batches, planned without reading anything.")
      .def(nb::init<const PyIndex&, const LoaderOptions&, const nb::dict&,
                    std::pair<std::uint32_t, std::uint32_t>,
                    std::pair<std::uint64_t, std::uint64_t>>(),
           nb::arg("index"), nb::arg("options"), nb::arg("parameters"), nb::arg("lane"),
           nb::arg("start"),
           nb::sig("def __init__(self, index: Index, options: LoaderOptions, "
                   "parameters: dict[str, int | str], lane: tuple[int, int], "
                   "start: tuple[int, int]) -> None"),
           "`parameters`: all of the order. `lane`: the rank's place among those that share its "
           "engine, and their number. `start`: epoch and step.")
      .def("next", &PyRankBatches::Next,
           nb::sig("def next(self) -> tuple[int, int, bool, list[int]] | None"),
           "(epoch, step, whether it ends the epoch, samples); None after the last.");
  BindEpochPlanner(module);
  module.def("reuse_distances", &ReuseDict, nb::arg("index"), nb::arg("options"), nb::arg("epochs"),
             nb::sig("def reuse_distances(index: Index, options: LoaderOptions, epochs: int) "
                     "-> dict[str, Any]"),
             "How many steps lie between uses of a sample, or a block: bins [i] of 2^i steps up.");
  module.def(
      "plan_schedule",
      [](const PyIndex& index, const LoaderOptions& options, const Text& path, std::uint64_t steps,
         double train_seconds) {
        std::string path_bytes = path.bytes();
        Result<std::uint64_t> written = [&] {
          const GilRelease released;
          return WriteSchedule(
              index.index, options,
              {.path = std::move(path_bytes), .steps = steps, .train_seconds = train_seconds});
        }();
        return ValueOrThrow(std::move(written));
      },
      nb::arg("index"), nb::arg("options"), nb::arg("path"), nb::arg("steps"),
      nb::arg("train_seconds"),
      "Writes the threads of each rank and what tiers do, for so many steps at most; how many.");
  module.def(
      "lane_policies",
      [] {
        std::vector<std::string> names;
        for (const LanePolicyFactory* each : LanePolicies().rows())
          names.emplace_back(each->name());
        return names;
      },
      "Names of the policies by which ranks share a node, the default first.");
  BindPlanFigures(module);
}

}  // namespace headrace::bindings
