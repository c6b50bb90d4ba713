// Blocks, and orders as streams of steps: what is planned, without reading anything.

#include "order.h"
#include "base/format/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/cell_pool.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/units.h"
#include "convert/expected_inflation.h"
#include "convert/keywords.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "loader/config/budget.h"
#include "loader/machine/machine.h"
#include "module.h"
#include "plan/order_factory.h"
#include "plan/quality/labels.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kIdsReserved = std::uint64_t{1} << 24;  // more grows as it comes

PyBlocks UniformBlocks(std::uint64_t samples, std::uint64_t block_samples) {
  constexpr std::uint64_t kSamplesMax = std::uint64_t{1} << 40;
  if (samples < 1 || samples > kSamplesMax || block_samples < 1 || block_samples >> 32 != 0) {
    ThrowStatus(
        InvalidArgument("blocks: got {} in blocks of {}, must be in [1, 2^40] and in [1, 2^32 - 1]",
                        Counted(samples, "sample"), block_samples));
  }
  return {MakeUniformBlocks(samples, block_samples)};
}

PyBlocks IndexBlocks(const PyIndex& index, std::uint64_t block_samples) {
  Result<std::shared_ptr<const BlockMap>> made = [&] {
    const GilRelease released;
    return MakeIndexBlocks(index.index, block_samples);
  }();
  return {ValueOrThrow(std::move(made))};
}

// The first sample of each block, then the number of samples.
OutArray<std::uint64_t> Bounds(const PyBlocks& self) {
  std::vector<std::uint64_t> bounds;
  bounds.reserve(self.blocks->block_count() + 1);
  for (std::uint64_t i = 0; i < self.blocks->block_count(); ++i) {
    bounds.push_back(Raw(self.blocks->block(i).first));
  }
  bounds.push_back(self.blocks->sample_count());
  return ToArray(std::move(bounds));
}

// What a stream is made from, out of Python's arguments.
struct Planned {
  const OrderFactory* factory = nullptr;
  OrderRequest request;
  Position start;
};

const OrderFactory& FindOrThrow(const std::string& name) {
  return *ValueOrThrow(Orders().Get(name));
}

Planned ToPlanned(const Text& order, const nb::dict& parameters, const nb::kwargs& given) {
  Planned planned{.factory = &FindOrThrow(order.bytes())};
  OrderRequest& request = planned.request;
  request.parameters = ToOrderParameters(parameters);
  Keywords keywords(given);
  const auto data = keywords.Take<nb::object>("index", nb::none());
  const auto block_samples = keywords.Take<std::uint64_t>("block_samples", 0);
  request.rank_units = keywords.Take<std::optional<std::uint64_t>>("rank_units", {});
  OrderOptions& job = request.job;
  job.batch_size = keywords.Take("batch_size", job.batch_size);
  job.world_size = keywords.Take("world_size", job.world_size);
  job.rank = keywords.Take("rank", job.rank);
  job.ranks = keywords.Take("ranks", job.ranks);
  job.exchange = keywords.Take("exchange", job.exchange);
  job.seed = keywords.Take("seed", job.seed);
  job.shuffle = keywords.Take("shuffle", job.shuffle);
  job.drop_last = keywords.Take("drop_last", job.drop_last);
  job.epochs = keywords.Take("epochs", job.epochs);
  planned.start.epoch = keywords.Take<std::uint64_t>("epoch", 0);
  planned.start.step = keywords.Take<std::uint64_t>("step", 0);
  request.homes = ToTable(keywords.Take<std::optional<InArray<std::uint32_t>>>("homes", {}));
  request.costs = ToTable(keywords.Take<std::optional<InArray<std::uint32_t>>>("costs", {}));
  keywords.Finish();
  if (nb::isinstance<PyBlocks>(data)) {
    request.blocks = nb::cast<PyBlocks>(data).blocks;
    job.sample_count = request.blocks->sample_count();
  } else if (nb::isinstance<PyIndex>(data)) {
    const PyIndex index = nb::cast<PyIndex>(data);
    job.sample_count = index.index->sample_count();
    if (planned.factory->reads_blocks()) request.blocks = IndexBlocks(index, block_samples).blocks;
  } else {
    std::vector<std::uint64_t> pair;
    if (!nb::try_cast(data, pair) || pair.size() != 2) {
      throw nb::type_error("index must be an Index, Blocks, or (samples, block_samples)");
    }
    request.blocks = UniformBlocks(pair[0], pair[1]).blocks;
    job.sample_count = pair[0];
  }
  return planned;
}

// A step, for a look: tests and tools, not for training.
nb::object BlockReads(const Step& step) {
  nb::list list;
  for (const BlockRead& read : step.reads) {
    list.append(
        nb::make_tuple(read.number, Raw(read.first), read.count, nb::cast(read.kept), read.again));
  }
  return list;
}

nb::object SamplesOf(const std::vector<Release>& samples) {
  nb::list list;
  for (const Release& each : samples) {
    list.append(nb::make_tuple(each.block_read, Raw(each.sample)));
  }
  return list;
}

nb::object ParcelReads(const Step& step) {
  nb::list list;
  for (const BlockRead& read : step.reads) {
    if (read.home != kNoNode) list.append(nb::make_tuple(read.number, read.home, read.parcel));
  }
  return list;
}

nb::object Parcels(const Step& step) {
  nb::list list;
  for (const Parcel& each : step.parcels) {
    list.append(nb::make_tuple(each.node, each.number, SamplesOf(each.samples), each.ahead));
  }
  return list;
}

nb::object Releases(const Step& step) { return SamplesOf(step.releases); }

template <typename T, typename Get>
OutArray<T> OfDeliveries(const Step& step, Get get) {
  std::vector<T> values;
  values.reserve(step.deliveries.size());
  for (const Delivery& each : step.deliveries) values.push_back(get(each));
  return ToArray(std::move(values));
}

class PyOrder {
 public:
  PyOrder(const Text& order, const nb::dict& parameters, const nb::kwargs& given) {
    Planned planned = ToPlanned(order, parameters, given);
    Status status;
    {
      const GilRelease released;
      status = Make(std::move(planned));
    }
    ThrowIfError(status);
  }

  Step Next() {
    std::optional<Step> step;
    {
      const GilRelease released;
      MutexLock lock(mutex_);
      step = order_->Next();
    }
    if (!step) throw nb::stop_iteration();
    return *std::move(step);
  }

  OutArray<std::uint64_t> Ids(std::uint64_t max_steps) {
    std::vector<std::uint64_t> ids;
    {
      const GilRelease released;
      MutexLock lock(mutex_);
      const std::uint64_t rows = std::min(request_.job.batch_size, request_.job.sample_count);
      ids.reserve(std::min(std::min(max_steps, steps_per_epoch_) * rows, kIdsReserved));
      for (std::uint64_t i = 0; i < max_steps; ++i) {
        const std::optional<Step> step = order_->Next();
        if (!step) break;
        for (const Delivery& each : step->deliveries) ids.push_back(Raw(each.sample));
      }
    }
    return ToArray(std::move(ids));
  }

  std::map<std::string, double> Counters() {
    const GilRelease released;
    MutexLock lock(mutex_);
    return order_->counters();
  }

  std::string Dump() {
    const GilRelease released;
    MutexLock lock(mutex_);
    return order_->Dump();
  }

  [[nodiscard]] const OrderParameters& parameters() const { return request_.parameters; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }
  [[nodiscard]] std::uint64_t resident_units() const { return resident_units_; }

 private:
  Status Make(Planned planned) {
    request_ = std::move(planned.request);
    HEADRACE_ASSIGN_OR_RETURN(steps_per_epoch_, StepsPerEpoch(request_.job));
    HEADRACE_ASSIGN_OR_RETURN(request_.parameters, planned.factory->Resolve(request_));
    HEADRACE_ASSIGN_OR_RETURN(resident_units_, planned.factory->ResidentUnits(request_));
    HEADRACE_ASSIGN_OR_RETURN(std::unique_ptr<Order> order,
                              planned.factory->Make(request_, planned.start));
    MutexLock lock(mutex_);
    order_ = std::move(order);
    return Status();
  }

  OrderRequest request_;
  std::uint64_t steps_per_epoch_ = 0;
  std::uint64_t resident_units_ = 0;
  Mutex mutex_;
  std::unique_ptr<Order> order_ HEADRACE_GUARDED_BY(mutex_);
};

// XXH3-64 over numbers of samples, 8 bytes each, little-endian.
class IdHasher {
 public:
  void Add(const InArray<std::uint64_t>& ids) {
    const std::span<const std::uint64_t> all(ids.data(), ids.size());
    const GilRelease released;
    MutexLock lock(mutex_);
    hasher_.Add(std::as_bytes(all));
  }

  std::string Digest() {
    MutexLock lock(mutex_);
    const std::uint64_t digest = hasher_.Digest();
    std::string text(16, '0');
    for (std::size_t i = 0; i < text.size(); ++i) {
      text[text.size() - 1 - i] = "0123456789abcdef"[digest >> (4 * i) & 0xf];
    }
    return text;
  }

 private:
  Mutex mutex_;
  Hasher64 hasher_ HEADRACE_GUARDED_BY(mutex_);
};

nb::dict ResolveOrder(const Text& order, const nb::dict& parameters, const nb::kwargs& given) {
  const Planned planned = ToPlanned(order, parameters, given);
  Result<OrderParameters> resolved = [&] {
    const GilRelease released;
    return planned.factory->Resolve(planned.request);
  }();
  return ToDict(ValueOrThrow(std::move(resolved)));
}

nb::object ExpectedInflationOf(const Text& order, const nb::dict& parameters,
                               const nb::kwargs& given) {
  nb::kwargs rest = nb::borrow<nb::kwargs>(nb::steal(PyDict_Copy(given.ptr())));
  SampleTable labels;
  if (rest.contains("labels")) {
    labels = ToTable(nb::cast<std::optional<InArray<std::uint32_t>>>(rest["labels"]));
    nb::del(rest["labels"]);
  }
  Planned planned = ToPlanned(order, parameters, rest);
  planned.request.parameters = ValueOrThrow(planned.factory->Resolve(planned.request));
  if (labels != nullptr && labels->size() != planned.request.job.sample_count) {
    ThrowStatus(InvalidArgument("labels: got {} for {}; give one for each", labels->size(),
                                Counted(planned.request.job.sample_count, "sample")));
  }
  const std::optional<ExpectedInflation> expected = [&] {
    const GilRelease released;
    return ExpectedLabelInflation(*planned.factory, planned.request, labels);
  }();
  return ToObject(expected);
}

nb::object LabelsOf(const PyIndex& index) {
  Result<SampleTable> labels = [&] {
    const GilRelease released;
    return InlineLabels(*index.index);
  }();
  const SampleTable table = ValueOrThrow(std::move(labels));
  if (table == nullptr) return nb::none();
  return nb::cast(ToArray(std::vector<std::uint32_t>(*table)), nb::rv_policy::move);
}

// What OrderStream and resolve_order have in common.
#define HEADRACE_JOB_ARGUMENTS                                                               \
  "index: Index | Blocks | tuple[int, int], block_samples: int = 0, batch_size: int = 1, "   \
  "world_size: int = 1, rank: int = 0, ranks: int = 1, exchange: bool = False, "             \
  "seed: int = 0, shuffle: bool = True, "                                                    \
  "drop_last: bool = False, epochs: int = 16777216, epoch: int = 0, step: int = 0, "         \
  "homes: NDArray[numpy.uint32] | None = None, costs: NDArray[numpy.uint32] | None = None, " \
  "rank_units: int | None = None"

// Units that a loader without memory= has for what its order keeps, on this machine.
std::uint64_t DefaultRankUnits(const PyBlocks& blocks, std::uint32_t world_size) {
  const std::uint64_t room =
      ResidentRoom({.memory_limit_bytes = MemoryLimitBytes()}, std::max(1U, world_size));
  return room / CellPool::ChargedBytes(1, blocks.blocks->unit_bytes());
}

void BindBlocks(nb::module_& module) {
  nb::class_<PyBlocks>(module, "Blocks", "How a dataset falls into blocks.")
      .def_static("uniform", &UniformBlocks, nb::arg("samples"), nb::arg("block_samples"),
                  "Without data: a sample is one unit of one byte.")
      .def_static("of_index", &IndexBlocks, nb::arg("index"), nb::arg("block_samples") = 0)
      .def_prop_ro("sample_count", [](const PyBlocks& self) { return self.blocks->sample_count(); })
      .def_prop_ro("block_count", [](const PyBlocks& self) { return self.blocks->block_count(); })
      .def_prop_ro("unit_bytes", [](const PyBlocks& self) { return self.blocks->unit_bytes(); })
      .def_prop_ro("total_units", [](const PyBlocks& self) { return self.blocks->total_units(); })
      .def_prop_ro("largest_block",
                   [](const PyBlocks& self) { return self.blocks->largest_block(); })
      .def("bounds", &Bounds, "The first sample of each block, then the number of samples.");
}

void BindStep(nb::module_& module) {
  nb::class_<Step>(module, "PlannedStep", "One global batch, as far as a rank takes part in it.")
      .def_ro("epoch", &Step::epoch)
      .def_ro("step", &Step::step)
      .def_ro("ends_epoch", &Step::ends_epoch)
      .def_prop_ro(
          "ids",
          [](const Step& self) {
            return OfDeliveries<std::uint64_t>(
                self, [](const Delivery& each) { return Raw(each.sample); });
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "slots",
          [](const Step& self) {
            return OfDeliveries<std::uint32_t>(self,
                                               [](const Delivery& each) { return each.slot; });
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "ranks",
          [](const Step& self) {
            return OfDeliveries<std::uint32_t>(self,
                                               [](const Delivery& each) { return each.rank; });
          },
          nb::rv_policy::move)
      .def_prop_ro(
          "block_read",
          [](const Step& self) {
            return OfDeliveries<std::int64_t>(self, [](const Delivery& each) {
              return static_cast<std::int64_t>(each.block_read);
            });
          },
          nb::rv_policy::move,
          "Of each delivery: the block read that keeps its sample; -1: it is read by itself.")
      .def_prop_ro("block_reads", &BlockReads,
                   nb::sig("def block_reads(self) -> list[tuple[int, int, int, list[int], bool]]"),
                   "(number, first, count, kept, again); nothing kept means all of them are.")
      .def_prop_ro("releases", &Releases, nb::sig("def releases(self) -> list[tuple[int, int]]"),
                   "(block_read, sample)")
      .def_prop_ro("parcel_reads", &ParcelReads,
                   nb::sig("def parcel_reads(self) -> list[tuple[int, int, int]]"),
                   "Of the block reads those that another node sends: (number, home, parcel).")
      .def_prop_ro("parcels", &Parcels,
                   nb::sig("def parcels(self) "
                           "-> list[tuple[int, int, list[tuple[int, int]], bool]]"),
                   "What is sent: (node, number, [(block_read, sample)], whether it goes ahead, so "
                   "that others come first).");
}

void BindOrders(nb::module_& module) {
  nb::class_<OrderFactory>(module, "OrderFactory", "A row of the table of orders.")
      .def_prop_ro("name", [](const OrderFactory& self) { return std::string(self.name()); })
      .def_prop_ro("reads_blocks", &OrderFactory::reads_blocks)
      .def_prop_ro("follows_lists", &OrderFactory::follows_lists)
      .def_prop_ro("takes_costs", &OrderFactory::takes_costs)
      .def_prop_ro(
          "budget_parameter",
          [](const OrderFactory& self) { return std::string(self.budget_parameter()); },
          "The parameter that says how many bytes stay resident; empty: none.")
      .def_prop_ro("reproduces_requests_of", &OrderFactory::reproduces_requests_of,
                   nb::rv_policy::reference,
                   nb::sig("def reproduces_requests_of(self) -> OrderFactory | None"),
                   "Of a paper's own order, to compare with: whose requests it answers.");
  module.def(
      "find_order", [](const Text& name) { return &FindOrThrow(name.bytes()); }, nb::arg("name"),
      nb::rv_policy::reference, "The order of that name.");
  module.def(
      "order_names",
      [] {
        std::vector<std::string> names;
        for (const OrderFactory* each : Orders().rows()) names.emplace_back(each->name());
        return names;
      },
      "The orders that there are, the default first.");
}

}  // namespace

void BindOrder(nb::module_& module) {
  BindBlocks(module);
  BindStep(module);
  nb::class_<PyOrder>(module, "OrderStream", "An order's steps, planned without reading anything.")
      .def(nb::init<const Text&, const nb::dict&, const nb::kwargs&>(), nb::arg("order"),
           nb::arg("parameters"), nb::arg("kwargs"),
           nb::sig("def __init__(self, order: str, parameters: dict[str, int | str], "
                   "*, " HEADRACE_JOB_ARGUMENTS ") -> None"))
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> OrderStream"))
      .def("__next__", &PyOrder::Next)
      .def("ids", &PyOrder::Ids, nb::arg("max_steps") = kAll,
           "The samples of the next steps, in one array; empty after the last step.")
      .def("counters", &PyOrder::Counters, "What the planner counted so far.")
      .def("dump", &PyOrder::Dump,
           "The planner's state after the last step, as JSON; empty if it tells none.")
      .def_prop_ro(
          "parameters", [](const PyOrder& self) { return ToDict(self.parameters()); },
          nb::sig("def parameters(self) -> dict[str, int | str]"), "With every default filled in.")
      .def_prop_ro("steps_per_epoch", &PyOrder::steps_per_epoch)
      .def_prop_ro("resident_units", &PyOrder::resident_units,
                   "Units (Blocks.unit_bytes) that the stream has resident at most.");
  nb::class_<IdHasher>(module, "IdHasher", "XXH3-64 over numbers of samples, 8 bytes each.")
      .def(nb::init<>())
      .def("add", &IdHasher::Add, nb::arg("ids"))
      .def("digest", &IdHasher::Digest, "16 hexadecimal digits.");
  module.def("resolve_order", &ResolveOrder, nb::arg("order"), nb::arg("parameters"),
             nb::arg("kwargs"),
             nb::sig("def resolve_order(order: str, parameters: dict[str, int | str], "
                     "*, " HEADRACE_JOB_ARGUMENTS ") -> dict[str, int | str]"),
             "The order's parameters with every default filled in.");
  module.def("expected_inflation", &ExpectedInflationOf, nb::arg("order"), nb::arg("parameters"),
             nb::arg("kwargs"),
             nb::sig("def expected_inflation(order: str, parameters: dict[str, int | str], *, "
                     "labels: NDArray[numpy.uint32] | None = None, " HEADRACE_JOB_ARGUMENTS
                     ") -> dict[str, float | None] | None"),
             "sharing, of_blocks, correlation, of_labels of a batch; None: no closed form.");
  module.def("inline_labels", &LabelsOf, nb::arg("index"),
             nb::sig("def inline_labels(index: Index) -> NDArray[numpy.uint32] | None"),
             "The number of each sample's label, by first appearance.");
  module.def("default_rank_units", &DefaultRankUnits, nb::arg("blocks"), nb::arg("world_size"),
             "Units that a loader without memory= has for what its order keeps, on this machine.");
  BindOrders(module);
}

}  // namespace headrace::bindings
