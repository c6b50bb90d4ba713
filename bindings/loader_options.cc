// Binds the options of a Loader: OrderSpec, LoaderOptions, NodeAddress.

#include "loader/config/loader_options.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
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

#include "arrays.h"
#include "convert/keywords.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "module.h"
#include "node/client/remote_loader.h"
#include "plan/block_map.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

void BindOrderSpec(nb::module_& module) {
  nb::class_<OrderSpec>(module, "OrderSpec", "Which order, and what fixes it beside the job.")
      .def(
          "__init__",
          [](OrderSpec* self, const Text& name, const nb::dict& parameters,
             const std::optional<InArray<std::uint32_t>>& homes,
             const std::optional<InArray<std::uint32_t>>& costs) {
            new (self) OrderSpec{.name = name.bytes(),
                                 .parameters = ToOrderParameters(parameters),
                                 .homes = ToTable(homes),
                                 .costs = ToTable(costs)};
          },
          nb::arg("name"), nb::arg("parameters"), nb::arg("homes") = nb::none(),
          nb::arg("costs") = nb::none(),
          nb::sig("def __init__(self, name: str, parameters: dict[str, int | str], "
                  "homes: numpy.typing.NDArray[typing.Any] | None = None, "
                  "costs: numpy.typing.NDArray[typing.Any] | None = None) -> None"))
      .def_ro("name", &OrderSpec::name)
      .def_prop_rw(
          "parameters", [](const OrderSpec& self) { return ToDict(self.parameters); },
          [](OrderSpec& self, const nb::dict& value) {
            self.parameters = ToOrderParameters(value);
          },
          nb::for_getter(nb::sig("def parameters(self) -> dict[str, int | str]")),
          nb::for_setter(nb::sig("def parameters(self, value: dict[str, int | str], /) -> None")));
  module.def(
      "stored_bytes",
      [](const PyIndex& index) {
        std::vector<std::uint32_t> bytes = WithoutGil([&] { return StoredBytes(*index.index); });
        return ToArray(std::move(bytes));
      },
      nb::arg("index"),
      nb::sig("def stored_bytes(index: Index) -> numpy.typing.NDArray[typing.Any]"),
      "Stored bytes of every sample, over all its fields.");
  module.def(
      "resident_bytes",
      [](const PyIndex& index, std::uint64_t block_samples) {
        const auto blocks =
            ValueOrThrow(WithoutGil([&] { return MakeIndexBlocks(index.index, block_samples); }));
        return blocks->total_units() * blocks->unit_bytes();
      },
      nb::arg("index"), nb::arg("block_samples"),
      "Bytes that all samples take when they are resident.");
}

void BindJobOptions(nb::class_<LoaderOptions>& options) {
  options.def(nb::init<>())
      .def_prop_rw(
          "batch_size", [](const LoaderOptions& self) { return self.job.batch_size; },
          [](LoaderOptions& self, std::uint64_t value) { self.job.batch_size = value; })
      .def_prop_rw(
          "world_size", [](const LoaderOptions& self) { return self.job.world_size; },
          [](LoaderOptions& self, std::uint32_t value) { self.job.world_size = value; })
      .def_prop_rw(
          "rank", [](const LoaderOptions& self) { return self.job.rank; },
          [](LoaderOptions& self, std::uint32_t value) { self.job.rank = value; })
      .def_prop_rw(
          "ranks", [](const LoaderOptions& self) { return self.job.ranks; },
          [](LoaderOptions& self, std::uint32_t value) { self.job.ranks = value; },
          "Of them, from rank on, that the loader is for: those of a node.")
      .def_prop_rw(
          "seed", [](const LoaderOptions& self) { return self.job.seed; },
          [](LoaderOptions& self, std::uint64_t value) { self.job.seed = value; })
      .def_prop_rw(
          "shuffle", [](const LoaderOptions& self) { return self.job.shuffle; },
          [](LoaderOptions& self, bool value) { self.job.shuffle = value; })
      .def_prop_rw(
          "drop_last", [](const LoaderOptions& self) { return self.job.drop_last; },
          [](LoaderOptions& self, bool value) { self.job.drop_last = value; })
      .def_prop_rw(
          "epochs", [](const LoaderOptions& self) { return self.job.epochs; },
          [](LoaderOptions& self, std::uint64_t value) { self.job.epochs = value; });
}

void BindOptions(nb::module_& module) {
  nb::enum_<EncodedImages>(module, "EncodedImages")
      .value("UNCHECKED", EncodedImages::kUnchecked)
      .value("DECODABLE", EncodedImages::kDecodable)
      .value("DECODABLE_OR_OTHER_KIND", EncodedImages::kDecodableOrOtherKind);
  nb::class_<LoaderOptions> options(module, "LoaderOptions", "What a Loader is made from.");
  BindJobOptions(options);
  options
      .def(
          "add_field",
          [](LoaderOptions& self, const Text& name, const std::optional<ImageTransform>& image,
             EncodedImages encoded) {
            self.fields.push_back({name.bytes(), image, encoded});
          },
          nb::arg("name"), nb::arg("image") = nb::none(),
          nb::arg("encoded") = EncodedImages::kUnchecked)
      .def_rw("order", &LoaderOptions::order)
      .def(
          "add_tier",
          [](LoaderOptions& self, const Text& path, std::uint64_t capacity_bytes, int threads) {
            self.tiers.tiers.push_back({path.bytes(), capacity_bytes, threads});
          },
          nb::arg("path"), nb::arg("capacity_bytes"), nb::arg("threads"),
          "One more tier, slower than those before; path \"\" is memory.")
      .def_prop_ro("tier_count", [](const LoaderOptions& self) { return self.tiers.tiers.size(); })
      .def_prop_rw(
          "placement", [](const LoaderOptions& self) { return self.tiers.placement; },
          [](LoaderOptions& self, const Text& value) { self.tiers.placement = value.bytes(); })
      .def_prop_rw(
          "horizon_epochs", [](const LoaderOptions& self) { return self.tiers.horizon_epochs; },
          [](LoaderOptions& self, std::uint64_t value) { self.tiers.horizon_epochs = value; })
      .def(
          "set_model", [](LoaderOptions& self, const MachineModel& model) { self.model = model; },
          nb::arg("model"), "What was measured of the machine, tiers in the order of add_tier().")
      .def_prop_rw(
          "schedule", [](const LoaderOptions& self) { return self.schedule; },
          [](LoaderOptions& self, const Text& value) { self.schedule = value.bytes(); },
          "How ranks of a node share it: a policy, or a file of plan_schedule().")
      .def(
          "add_preprocess",
          [](LoaderOptions& self, std::uint64_t transform, double bytes, int threads,
             std::uint64_t count, double seconds) {
            self.preprocess.push_back({transform, bytes, threads, count, seconds});
          },
          nb::arg("transform"), nb::arg("bytes"), nb::arg("threads"), nb::arg("count"),
          nb::arg("seconds"), "One more mean of Loader.learned().")
      .def_rw("memory_bytes", &LoaderOptions::memory_bytes)
      .def_rw("batches_ahead", &LoaderOptions::batches_ahead)
      .def_rw("threads", &LoaderOptions::threads)
      .def_prop_rw(
          "io", [](const LoaderOptions& self) { return self.io; },
          [](LoaderOptions& self, const Text& name) { self.io = name.bytes(); })
      .def(
          "set_remedies",
          [](LoaderOptions& self, const std::tuple<Text, Text, Text>& texts) {
            self.remedies = ToRemedies(texts);
          },
          nb::arg("remedies"))
      .def_prop_rw(
          "substitute",
          [](const LoaderOptions& self) { return self.on_error == OnError::kSubstitute; },
          [](LoaderOptions& self, bool value) {
            self.on_error = value ? OnError::kSubstitute : OnError::kRaise;
          })
      .def_rw("verify", &LoaderOptions::verify)
      .def_rw("worker_results", &LoaderOptions::worker_results)
      .def_rw("shared_batches", &LoaderOptions::shared_batches)
      .def_rw("batches_behind", &LoaderOptions::batches_behind);
}

void BindNodeAddress(nb::module_& module) {
  nb::class_<NodeAddress>(module, "NodeAddress", "Where a rank finds its node process.")
      .def(
          "__init__",
          [](NodeAddress* self, const Text& socket, const Text& job, std::uint32_t local_rank,
             std::uint32_t local_world_size, std::int64_t start_timeout_s) {
            new (self) NodeAddress{.socket = socket.bytes(),
                                   .job = job.bytes(),
                                   .local_rank = local_rank,
                                   .local_ranks = local_world_size,
                                   .start_timeout_ns = start_timeout_s * 1'000'000'000};
          },
          nb::arg("socket"), nb::arg("job"), nb::arg("local_rank"), nb::arg("local_world_size"),
          nb::arg("start_timeout_s"));
}
}  // namespace

void BindLoaderOptions(nb::module_& module) {
  BindOrderSpec(module);
  BindOptions(module);
  BindNodeAddress(module);
}

}  // namespace headrace::bindings
