// On which nodes' own disks the objects of a dataset lie.

#include "index/homes/homes.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/format/errors.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "module.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

struct PyHomes {
  std::shared_ptr<const Index> index;
  Homes homes;
};

PyHomes HomesOrThrow(const PyIndex& index) {
  auto homes = WithoutGil([&] { return HomesOf(*index.index); });
  return {.index = index.index, .homes = ValueOrThrow(std::move(homes))};
}

std::uint32_t OfObject(const PyHomes& self, std::uint64_t object) {
  if (object >= self.index->object_count()) {
    ThrowStatus(OutOfRange("object {}: the index has {}", object, self.index->object_count()));
  }
  return self.homes.of(ObjectId{object});
}

std::vector<std::pair<bool, nb::str>> Present(const PyHomes& self) {
  std::vector<std::pair<bool, nb::str>> present;
  for (const Result<bool>& home :
       WithoutGil([&] { return LookAtHomes(*self.index, self.homes); })) {
    present.emplace_back(home.ok() && home.value(),
                         ToMessage(home.ok() ? "" : home.status().message()));
  }
  return present;
}

}  // namespace

void BindHomes(nb::module_& module) {
  nb::class_<PyHomes>(module, "Homes", "On which nodes' own disks the objects of an index lie.")
      .def_static("of", &HomesOrThrow, "index"_a)
      .def_prop_ro(
          "count", [](const PyHomes& self) { return self.homes.count; }, "1: all lie in one place")
      .def("of_object", &OfObject, "object"_a)
      .def(
          "of_sample",
          [](const PyHomes& self, std::uint64_t sample) {
            return ValueOrThrow(HomeOfSample(*self.index, self.homes, SampleId{sample}));
          },
          "sample"_a)
      .def(
          "of_samples",
          [](const PyHomes& self) {
            return ToArray(
                ValueOrThrow(WithoutGil([&] { return HomesOfSamples(*self.index, self.homes); })));
          },
          "The home of every sample.")
      .def(
          "present", &Present,
          "For each home whether it is on this node, and why it cannot be read although its folder "
          "is; empty: it can.");
}

}  // namespace headrace::bindings
