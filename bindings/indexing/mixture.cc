// Mixtures of datasets: which source has each position, and their indexes as one.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "convert/text.h"
#include "gil/gil.h"
#include "index/joined_index.h"
#include "indexing/mixture.h"
#include "module.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

using SourceArgument = std::tuple<Text, std::uint64_t, std::optional<std::uint64_t>>;
using StageArgument = std::pair<std::uint64_t, std::vector<double>>;
using Renames = std::vector<std::pair<Text, Text>>;
using PartArgument = std::tuple<Text, Text, Renames>;

void MakeMixture(PyMixture* self, const std::vector<SourceArgument>& sources,
                 const std::vector<StageArgument>& stages, MixtureEnd end,
                 std::uint64_t epoch_samples) {
  MixtureOptions options{.end = end, .epoch_samples = epoch_samples};
  for (const auto& [name, samples, passes_max] : sources) {
    options.sources.push_back({.name = name.bytes(), .samples = samples, .passes_max = passes_max});
  }
  for (const auto& [begin, weights] : stages) {
    options.stages.push_back({.begin = begin, .weights = weights});
  }
  auto kept = std::make_shared<const MixtureOptions>(options);
  auto made = ValueOrThrow(WithoutGil([&] { return Mixture::Make(std::move(options)); }));
  new (self) PyMixture{.options = std::move(kept),
                       .made = std::make_shared<const Mixture>(std::move(made))};
}

std::vector<std::uint64_t> CountsBefore(const PyMixture& self, std::uint64_t position) {
  const std::optional<std::uint64_t> length = self.made->length();
  if (position > length.value_or(SplitTree::kPositionsMax - 1)) {
    ThrowStatus(Status(StatusCode::kOutOfRange, "the mixture ends before this position"));
  }
  return self.made->CountsBefore(position);
}

void JoinIndexes(const std::vector<PartArgument>& parts, const Text& part_field,
                 bool prefixed_names, const Text& path) {
  JoinOptions options{.part_field = part_field.bytes(), .prefixed_names = prefixed_names};
  for (const auto& [name, index_path, renames] : parts) {
    JoinedPart part{.name = name.bytes(), .path = index_path.bytes()};
    for (const auto& [own, joined] : renames)
      part.renames.emplace_back(own.bytes(), joined.bytes());
    options.parts.push_back(std::move(part));
  }
  ThrowIfError(WithoutGil([&] { return WriteJoinedIndex(options, path.bytes()); }));
}

}  // namespace

void BindMixture(nb::module_& module) {
  nb::enum_<MixtureEnd>(module, "MixtureEnd")
      .value("NEVER", MixtureEnd::kNever)
      .value("FIRST", MixtureEnd::kFirst)
      .value("ALL", MixtureEnd::kAll);
  nb::class_<PyMixture>(module, "Mixture", "Which source has each position; a pure function.")
      .def("__init__", &MakeMixture, nb::arg("sources"), nb::arg("stages"), nb::arg("end"),
           nb::arg("epoch_samples"),
           nb::sig("def __init__(self, sources: list[tuple[str, int, int | None]], "
                   "stages: list[tuple[int, list[float]]], end: MixtureEnd, epoch_samples: int) "
                   "-> None"))
      .def_prop_ro("epoch_samples",
                   [](const PyMixture& self) { return self.made->epoch_samples(); })
      .def_prop_ro(
          "length", [](const PyMixture& self) { return self.made->length(); },
          "Positions; None: it goes on for ever.")
      .def("counts_before", &CountsBefore, nb::arg("position"),
           nb::sig("def counts_before(self, position: int) -> list[int]"),
           "Draws of each source before it.");
  module.def("join_indexes", &JoinIndexes, nb::arg("parts"), nb::arg("part_field"),
             nb::arg("prefixed_names"), nb::arg("path"),
             nb::sig("def join_indexes(parts: list[tuple[str, str, list[tuple[str, str]]]], "
                     "part_field: str, prefixed_names: bool, path: str) -> None"),
             "Writes an index file that stands for the parts: (name, path, renames), joined.");
}

}  // namespace headrace::bindings
