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
#include <type_traits>
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
      .def(
          "leave_out",
          [](OrderSpec& self, const InArray<std::uint32_t>& numbers) {
            self.left_out = ToTable(numbers);
          },
          nb::arg("numbers"),
          nb::sig("def leave_out(self, numbers: numpy.typing.NDArray[typing.Any]) -> None"),
          "Has no epoch hold the samples of these numbers, ascending.")
      .def_prop_ro(
          "exchanging_nodes",
          [](const OrderSpec& self) {
            const auto factory = Orders().Get(self.name);
            return factory.ok() ? factory.value()->exchanging_nodes(self.parameters) : 1U;
          },
          "Nodes that send each other samples in a run of so many; 1: each reads all it delivers.")
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

// An attribute for each number, flag and text of a struct of options; `of` finds it in them.
template <typename Struct, typename Of>
void BindMembers(nb::class_<LoaderOptions>& options, Of of) {
  const auto bind = [&]<typename Value>(Member<Struct, Value> member) {
    const auto get = [=](const LoaderOptions& self) { return of(self).*member.pointer; };
    if constexpr (std::is_same_v<Value, std::string>) {
      options.def_prop_rw(member.name, get, [=](LoaderOptions& self, const Text& value) {
        of(self).*member.pointer = value.bytes();
      });
    } else if constexpr (std::is_arithmetic_v<Value>) {
      options.def_prop_rw(member.name, get, [=](LoaderOptions& self, Value value) {
        of(self).*member.pointer = value;
      });
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
  nb::class_<LoaderOptions> options(module, "LoaderOptions", "What a Loader is made from.");
  BindMembers<LoaderOptions>(
      options, [](auto& self) -> auto& { return self; });
  BindMembers<OrderOptions>(
      options, [](auto& self) -> auto& { return self.job; });
  BindMembers<TiersSpec>(
      options, [](auto& self) -> auto& { return self.tiers; });
  options.def(nb::init<>())
      .def(
          "add_field",
          [](LoaderOptions& self, const Text& name, const std::optional<ImageTransform>& image,
             EncodedImages encoded, const std::optional<SoundTransform>& sound) {
            self.fields.push_back({name.bytes(), image, encoded, sound});
          },
          nb::arg("name"), nb::arg("image") = nb::none(),
          nb::arg("encoded") = EncodedImages::kUnchecked, nb::arg("sound") = nb::none())
      .def_rw("order", &LoaderOptions::order)
      .def(
          "add_tier",
          [](LoaderOptions& self, const Text& path, std::uint64_t capacity_bytes, int threads) {
            self.tiers.tiers.push_back({path.bytes(), capacity_bytes, threads});
          },
          nb::arg("path"), nb::arg("capacity_bytes"), nb::arg("threads"),
          "One more tier, slower than those before; path \"\" is memory.")
      .def_prop_ro("tier_count", [](const LoaderOptions& self) { return self.tiers.tiers.size(); })
      .def(
          "set_model", [](LoaderOptions& self, const MachineModel& model) { self.model = model; },
          nb::arg("model"), "What was measured of the machine, tiers in the order of add_tier().")
      .def(
          "add_preprocess",
          [](LoaderOptions& self, std::uint64_t transform, double bytes, int threads,
             std::uint64_t count, double seconds) {
            self.preprocess.push_back({transform, bytes, threads, count, seconds});
          },
          nb::arg("transform"), nb::arg("bytes"), nb::arg("threads"), nb::arg("count"),
          nb::arg("seconds"), "One more mean of Loader.decode_times().")
      .def(
          "set_nodes",
          [](LoaderOptions& self, const Text& address, bool open_network, const Text& authority,
             const Text& certificate, const Text& key, const Text& name) {
            self.nodes = PeerListen{.address = address.bytes(),
                                    .open_network = open_network,
                                    .authority = authority.bytes(),
                                    .certificate = certificate.bytes(),
                                    .key = key.bytes(),
                                    .name = name.bytes()};
          },
          nb::arg("address"), nb::arg("open_network"), nb::arg("authority"), nb::arg("certificate"),
          nb::arg("key"), nb::arg("name"),
          "Where the node process listens for those of other nodes.")
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
          });
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
  BindOptions(module);
  BindNodeAddress(module);
}

}  // namespace headrace::bindings
