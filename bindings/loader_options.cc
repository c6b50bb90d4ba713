// Binds the options of a Loader: OrderSpec, LoaderOptions, NodeAddress.

#include "headrace/loader_options.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "convert/keywords.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "indexing/mixture.h"
#include "module.h"
#include "node/client/remote_loader.h"
#include "plan/block_map.h"
#include "status.h"

namespace headrace::bindings {

template <>
inline constexpr bool kHasClass<ImageTransform> = true;
template <>
inline constexpr bool kHasClass<SoundTransform> = true;
template <>
inline constexpr bool kHasClass<MachineModel> = true;
template <>
inline constexpr bool kHasClass<OrderSpec> = true;

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
      .def(
          "leaving_out",
          [](const OrderSpec& self, const InArray<std::uint32_t>& numbers) {
            OrderSpec changed = self;
            changed.left_out = ToTable(numbers);
            return changed;
          },
          nb::arg("numbers"),
          nb::sig("def leaving_out(self, numbers: numpy.typing.NDArray[typing.Any]) -> OrderSpec"),
          "The same, but no epoch holds the samples of these numbers, ascending.")
      .def(
          "of_mixture",
          [](const OrderSpec& self, const PyMixture& mixture) {
            OrderSpec changed = self;
            changed.mixture = mixture.options;
            return changed;
          },
          nb::arg("mixture"), "The same, of the samples that a mixture draws.")
      .def(
          "with_parameters",
          [](const OrderSpec& self, const nb::dict& parameters) {
            OrderSpec changed = self;
            changed.parameters = ToOrderParameters(parameters);
            return changed;
          },
          nb::arg("parameters"),
          nb::sig("def with_parameters(self, parameters: dict[str, int | str]) -> OrderSpec"))
      .def_prop_ro(
          "exchanging_nodes",
          [](const OrderSpec& self) {
            const auto factory = Orders().Get(self.name);
            return factory.ok() ? factory.value()->exchanging_nodes(self.parameters) : 1U;
          },
          "Nodes that send each other samples in a run of so many; 1: each reads all it delivers.")
      .def_prop_ro(
          "parameters", [](const OrderSpec& self) { return ToDict(self.parameters); },
          nb::sig("def parameters(self) -> dict[str, int | str]"));
}

void BindSizes(nb::module_& module) {
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

// An attribute for each number, flag and text of a struct of options; `of` finds it in them.
template <typename Struct, typename Of>
void BindMembers(nb::class_<LoaderOptions>& options, Of of) {
  const auto bind = [&]<typename Value>(Member<Struct, Value> member) {
    if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string> ||
                  std::is_same_v<Value, std::optional<std::uint32_t>>) {
      options.def_prop_ro(member.name,
                          [=](const LoaderOptions& self) { return of(self).*member.pointer; });
    }
  };
  std::apply([&](const auto&... each) { (bind(each), ...); },
             MembersOf(static_cast<const Struct*>(nullptr)));
}

void BindOptions(nb::module_& module) {
  nb::enum_<EncodedImages>(module, "EncodedImages")
      .value("UNCHECKED", EncodedImages::kUnchecked)
      .value("DECODABLE", EncodedImages::kDecodable)
      .value("DECODABLE_OR_OTHER_KIND", EncodedImages::kDecodableOrOtherKind);
  nb::enum_<OnError>(module, "OnError")
      .value("RAISE", OnError::kRaise)
      .value("SUBSTITUTE", OnError::kSubstitute);
  nb::class_<LoaderOptions> options(module, "LoaderOptions",
                                    "What one rank's Loader is made from. Nothing changes it.");
  BindMembers<LoaderOptions>(
      options, [](const auto& self) -> const auto& { return self; });
  BindMembers<OrderOptions>(
      options, [](const auto& self) -> const auto& { return self.job; });
  BindMembers<TiersSpec>(
      options, [](const auto& self) -> const auto& { return self.tiers; });
  options
      .def(
          "__init__",
          [](LoaderOptions* self, const nb::kwargs& members) {
            LoaderOptions made;
            SetMembers(members, made);
            new (self) LoaderOptions(std::move(made));
          },
          nb::sig("def __init__(self, **members: typing.Any) -> None"),
          "The members of the struct, those that are structs as dicts; others have defaults.")
      .def(
          "replace",
          [](const LoaderOptions& self, const nb::kwargs& members) {
            LoaderOptions made = self;
            SetMembers(members, made);
            return made;
          },
          nb::sig("def replace(self, **members: typing.Any) -> LoaderOptions"),
          "Others, which differ in these members, and of those that are dicts in what these have.")
      .def_prop_ro("order", [](const LoaderOptions& self) { return self.order; })
      .def_prop_ro("on_error", [](const LoaderOptions& self) { return self.on_error; })
      .def_prop_ro("tier_count", [](const LoaderOptions& self) { return self.tiers.tiers.size(); });
}

void BindNodeAddress(nb::module_& module) {
  nb::class_<NodeAddress>(module, "NodeAddress", "Where a rank finds its node process.")
      .def(
          "__init__",
          [](NodeAddress* self, const Text& socket, const Text& job,
             std::pair<std::uint32_t, std::uint32_t> local,
             std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> lanes,
             std::int64_t start_timeout_s) {
            new (self) NodeAddress{.socket = socket.bytes(),
                                   .job = job.bytes(),
                                   .local_rank = local.first,
                                   .local_ranks = local.second,
                                   .lanes = NodeAddress::Lanes{.process = std::get<0>(lanes),
                                                               .lane = std::get<1>(lanes),
                                                               .lanes = std::get<2>(lanes)},
                                   .start_timeout_ns = start_timeout_s * 1'000'000'000};
          },
          nb::arg("socket"), nb::arg("job"), nb::arg("local"), nb::arg("lanes"),
          nb::arg("start_timeout_s"),
          "local: (local rank, local ranks); lanes: (rank of the process, lane, lanes)");
}
}  // namespace

void BindLoaderOptions(nb::module_& module) {
  BindOrderSpec(module);
  BindSizes(module);
  BindOptions(module);
  BindNodeAddress(module);
}

}  // namespace headrace::bindings
