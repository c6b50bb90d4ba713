// Loader, its options, batches; and the permutation that orders are made of.

#include "runtime/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "index.h"
#include "keywords.h"
#include "loader.h"
#include "loader_stats.h"
#include "module.h"
#include "order_parameters.h"
#include "plan/block_map.h"
#include "plan/permutation.h"
#include "runtime/machine.h"
#include "runtime/node/remote_loader.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// How long Next() waits before it looks for signals: Ctrl-C.
constexpr std::int64_t kSignalsEveryNs = 50'000'000;

nb::dlpack::dtype ToDlpack(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return nb::dtype<std::uint8_t>();
    case DType::kInt8:
      return nb::dtype<std::int8_t>();
    case DType::kInt16:
      return nb::dtype<std::int16_t>();
    case DType::kInt32:
      return nb::dtype<std::int32_t>();
    case DType::kInt64:
      return nb::dtype<std::int64_t>();
    case DType::kFloat16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::kFloat32:
      return nb::dtype<float>();
    case DType::kFloat64:
      return nb::dtype<double>();
    case DType::kUInt16:
      return nb::dtype<std::uint16_t>();
    case DType::kUInt32:
      return nb::dtype<std::uint32_t>();
    case DType::kBool:
      return nb::dtype<bool>();
  }
  return nb::dtype<std::uint8_t>();
}

using Array = nb::ndarray<nb::array_api, nb::device::cpu>;

// A view of a batch's memory, which it keeps. The capsule runs no Python: tensors may die on any
// thread, after the interpreter too.
Array View(const std::shared_ptr<Batch>& batch, std::span<std::byte> bytes,
           const std::vector<std::size_t>& shape, DType dtype) {
  auto lease = std::make_unique<std::shared_ptr<Batch>>(batch);
  nb::capsule owner(lease.get(), [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<Batch>*>(pointer);
  });
  static_cast<void>(lease.release());  // the capsule's, from here on
  return Array(bytes.data(), shape.size(), shape.data(), owner, nullptr, ToDlpack(dtype));
}

// A batch in Python: a lease on it, and its schema.
struct PyBatch {
  std::shared_ptr<Batch> batch;
  std::vector<BatchField> schema;
};

nb::object FieldView(const PyBatch& self, std::size_t position) {
  if (position >= self.schema.size()) throw nb::index_error("no such field");
  const BatchField& field = self.schema[position];
  const BatchRows& rows = self.batch->fields[position];
  if (!field.ragged) {
    std::vector<std::size_t> shape = {self.batch->samples.size()};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    return nb::cast(View(self.batch, rows.packed, shape, field.dtype));
  }
  nb::list list;
  for (const std::span<std::byte> row : rows.rows) {
    list.append(View(self.batch, row, {row.size()}, DType::kUInt8));
  }
  return list;
}

OutArray<std::uint64_t> Samples(const PyBatch& self) {
  std::vector<std::uint64_t> ids;
  ids.reserve(self.batch->samples.size());
  for (const SampleId id : self.batch->samples) ids.push_back(Raw(id));
  return ToArray(std::move(ids));
}

using Flag = std::shared_ptr<std::atomic<bool>>;

// The node process may take its time for this and every answer: Ctrl-C is looked for meanwhile, and
// whether another thread closes the loader. What a signal's handler raises, ThrowStatus() finds.
std::shared_ptr<BatchSource> OpenAtNode(const PyIndex& index, const LoaderOptions& options,
                                        NodeAddress node, const Flag& closed) {
  node.index_path = std::filesystem::absolute(index.path).string();
  node.fingerprint = index.index->fingerprint();
  const auto keep_waiting = [closed] {
    if (closed->load()) return false;
    const nb::gil_scoped_acquire acquired;
    return PyErr_CheckSignals() == 0;
  };
  return ValueOrThrow(WithoutGil([&]() -> Result<std::shared_ptr<BatchSource>> {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<BatchSource> loader,
                              RemoteLoader::Open(node, options, keep_waiting));
    return loader;
  }));
}

class PyLoader {
 public:
  PyLoader(const PyIndex& index, const LoaderOptions& options,
           const std::optional<NodeAddress>& node) {
    std::shared_ptr<BatchSource> loader =
        node.has_value() ? OpenAtNode(index, options, *node, closed_)
                         : ValueOrThrow(WithoutGil([&]() -> Result<std::shared_ptr<BatchSource>> {
                             HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<BatchSource> opened,
                                                       Loader::Open(index.index, options));
                             return opened;
                           }));
    schema_.assign(loader->schema().begin(), loader->schema().end());
    MutexLock lock(mutex_);
    loader_ = std::move(loader);
  }

  ~PyLoader() { Close(); }
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  // A lease: another thread may close the loader meanwhile.
  [[nodiscard]] std::shared_ptr<BatchSource> loader() const {
    std::shared_ptr<BatchSource> loader = Lease();
    if (loader == nullptr) {
      ThrowStatus(Status(StatusCode::kFailedPrecondition, "the loader is closed"));
    }
    return loader;
  }
  [[nodiscard]] const std::vector<BatchField>& schema() const { return schema_; }

  void Start(std::uint64_t epoch, std::uint64_t step) {
    const std::shared_ptr<BatchSource> loader = this->loader();
    ThrowIfError(WithoutGil([&] { return loader->Start({.epoch = epoch, .step = step}); }));
  }

  void StartList(const InArray<std::uint64_t>& ids, const InArray<std::uint64_t>& ends,
                 std::uint64_t epoch, std::uint64_t first_step) {
    ListOrderOptions list{.epoch = epoch, .first_step = first_step};
    for (std::size_t i = 0; i < ids.size(); ++i) list.ids.push_back(SampleId{ids.data()[i]});
    list.batch_ends.assign(ends.data(), ends.data() + ends.size());
    const std::shared_ptr<BatchSource> loader = this->loader();
    ThrowIfError(WithoutGil([&] { return loader->StartList(std::move(list)); }));
  }

  std::optional<PyBatch> Next() {
    const std::shared_ptr<BatchSource> loader = this->loader();
    for (;;) {
      Result<BatchQueue::Taken> taken = WithoutGil([&] { return loader->Next(kSignalsEveryNs); });
      BatchQueue::Taken got = ValueOrThrow(std::move(taken));
      if (got.ended) return std::nullopt;
      if (got.batch != nullptr) return PyBatch{std::move(got.batch), schema_};
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  void Stop() {
    if (const std::shared_ptr<BatchSource> loader = Lease()) WithoutGil([&] { loader->Stop(); });
  }

  // Ends calls that wait for an answer, and waits for the loader's threads, which need no GIL.
  void Close() {
    closed_->store(true);
    std::shared_ptr<BatchSource> loader = Lease();
    if (loader == nullptr) return;
    WithoutGil([&] {
      loader->Stop();
      MutexLock lock(mutex_);
      loader_.reset();
    });
    WithoutGil([&] { loader.reset(); });
  }

  nb::list Explain(std::uint64_t epoch, std::uint64_t step) const;
  nb::list ExplainRows(const std::vector<std::uint64_t>& ids) const;
  nb::dict Stats() const;
  nb::dict StepTimes() const;
  nb::list TiersInTrouble() const;
  nb::list Learned() const;

 private:
  static nb::list Listed(const std::vector<PlannedRow>& rows) {
    nb::list list;
    for (const PlannedRow& row : rows) {
      list.append(nb::make_tuple(row.slot, Raw(row.sample), row.field, row.source, row.object,
                                 row.range.offset, row.range.size, row.actual));
    }
    return list;
  }

  // What the loader answers. It may be closed meanwhile, and end with this hold of it, which takes
  // time: not with the GIL.
  template <typename Ask>
  auto Asked(Ask ask) const {
    std::shared_ptr<BatchSource> loader = this->loader();
    return ValueOrThrow(WithoutGil([&] {
      auto answer = ask(*loader);
      loader.reset();
      return answer;
    }));
  }

  [[nodiscard]] std::shared_ptr<BatchSource> Lease() const {
    MutexLock lock(mutex_);
    return loader_;
  }

  const Flag closed_ = std::make_shared<std::atomic<bool>>(false);
  mutable Mutex mutex_;
  std::shared_ptr<BatchSource> loader_ HEADRACE_GUARDED_BY(mutex_);  // null: closed
  std::vector<BatchField> schema_;
};

nb::list PyLoader::Explain(std::uint64_t epoch, std::uint64_t step) const {
  return Listed(
      Asked([&](BatchSource& loader) { return loader.Explain({.epoch = epoch, .step = step}); }));
}

nb::list PyLoader::ExplainRows(const std::vector<std::uint64_t>& ids) const {
  std::vector<SampleId> samples;
  samples.reserve(ids.size());
  for (const std::uint64_t id : ids) samples.push_back(SampleId{id});
  return Listed(Asked([&](BatchSource& loader) { return loader.ExplainRows(samples); }));
}

// (transform, bytes, threads, count, seconds) of each mean.
nb::list PyLoader::Learned() const {
  nb::list list;
  const auto rows = Asked([](BatchSource& loader) { return loader.learned(); });
  for (const PreprocessModel::Row& row : rows) {
    list.append(nb::make_tuple(row.transform, row.bytes, row.threads, row.count, row.seconds));
  }
  return list;
}

nb::list PyLoader::TiersInTrouble() const {
  const std::shared_ptr<BatchSource> loader = this->loader();
  nb::list list;
  for (const NamedTierStats& tier : loader->tier_stats()) {
    if (tier.stats.degraded) {
      list.append(nb::make_tuple(tier.name, tier.stats.degraded_reason));
    }
  }
  return list;
}

nb::dict PyLoader::StepTimes() const {
  return StepTimesDict(Asked([](BatchSource& loader) { return loader.step_times(); }));
}

nb::dict PyLoader::Stats() const {
  return StatsDict(Asked([](BatchSource& loader) { return loader.stats(); }));
}

OutArray<std::uint64_t> PermutationArray(std::uint64_t size, std::uint64_t seed,
                                         std::uint64_t epoch, std::uint32_t stream) {
  if (epoch >= kEpochsMax) throw nb::value_error("epoch must be below 2**24");
  std::vector<std::uint64_t> list(size);
  {
    const nb::gil_scoped_release released;
    const Permutation permutation(size, seed, epoch, static_cast<RandomStream>(stream & 0xff));
    for (std::uint64_t i = 0; i < size; ++i) list[i] = permutation.At(i);
  }
  return ToArray(std::move(list));
}

void BindOrderSpec(nb::module_& module) {
  nb::class_<OrderSpec>(module, "OrderSpec", "Which order, and what fixes it beside the job.")
      .def(
          "__init__",
          [](OrderSpec* self, std::string name, const nb::dict& parameters,
             const std::optional<InArray<std::uint32_t>>& homes,
             const std::optional<InArray<std::uint32_t>>& costs) {
            new (self) OrderSpec{.name = std::move(name),
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
  nb::enum_<IoChoice>(module, "IoChoice")
      .value("AUTO", IoChoice::kAuto)
      .value("IO_URING", IoChoice::kUring)
      .value("THREADS", IoChoice::kThreads)
      .value("SYNTHETIC", IoChoice::kSynthetic);
  nb::class_<LoaderOptions> options(module, "LoaderOptions", "What a Loader is made from.");
  BindJobOptions(options);
  options
      .def(
          "add_field",
          [](LoaderOptions& self, std::string name, const std::optional<ImageTransform>& image) {
            self.fields.push_back({std::move(name), image});
          },
          nb::arg("name"), nb::arg("image") = nb::none())
      .def_rw("order", &LoaderOptions::order)
      .def(
          "add_tier",
          [](LoaderOptions& self, std::string path, std::uint64_t capacity_bytes, int threads) {
            self.tiers.tiers.push_back({std::move(path), capacity_bytes, threads});
          },
          nb::arg("path"), nb::arg("capacity_bytes"), nb::arg("threads"),
          "One more tier, slower than those before; path \"\" is memory.")
      .def_prop_ro("tier_count", [](const LoaderOptions& self) { return self.tiers.tiers.size(); })
      .def_prop_rw(
          "placement", [](const LoaderOptions& self) { return self.tiers.placement; },
          [](LoaderOptions& self, std::string value) { self.tiers.placement = std::move(value); })
      .def_prop_rw(
          "horizon_epochs", [](const LoaderOptions& self) { return self.tiers.horizon_epochs; },
          [](LoaderOptions& self, std::uint64_t value) { self.tiers.horizon_epochs = value; })
      .def(
          "set_model", [](LoaderOptions& self, const MachineModel& model) { self.model = model; },
          nb::arg("model"), "What was measured of the machine, tiers in the order of add_tier().")
      .def_prop_rw(
          "schedule", [](const LoaderOptions& self) { return self.schedule; },
          [](LoaderOptions& self, std::string value) { self.schedule = std::move(value); },
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
      .def_rw("io", &LoaderOptions::io)
      .def_prop_rw(
          "substitute",
          [](const LoaderOptions& self) { return self.on_error == OnError::kSubstitute; },
          [](LoaderOptions& self, bool value) {
            self.on_error = value ? OnError::kSubstitute : OnError::kRaise;
          })
      .def_rw("verify", &LoaderOptions::verify)
      .def_rw("shared_batches", &LoaderOptions::shared_batches);
}

void BindBatch(nb::module_& module) {
  nb::class_<PyBatch>(module, "Batch", "One batch; its arrays are views that keep its memory.")
      .def_prop_ro("epoch", [](const PyBatch& self) { return self.batch->epoch; })
      .def_prop_ro("step", [](const PyBatch& self) { return self.batch->step; })
      .def_prop_ro("ends_epoch", [](const PyBatch& self) { return self.batch->ends_epoch; })
      .def_prop_ro("beyond_budget", [](const PyBatch& self) { return self.batch->beyond_budget; })
      .def("samples", &Samples, "The numbers of its samples, by slot.")
      .def("field", &FieldView, nb::arg("position"),
           nb::sig("def field(self, position: int) -> object"),
           "A DLPack and buffer exporter; a list of them where rows differ in length.");
}

void BindNodeAddress(nb::module_& module) {
  nb::class_<NodeAddress>(module, "NodeAddress", "Where a rank finds its node process.")
      .def(
          "__init__",
          [](NodeAddress* self, std::string socket, std::string job, std::uint32_t local_rank,
             std::uint32_t local_world_size, std::int64_t start_timeout_s) {
            new (self) NodeAddress{.socket = std::move(socket),
                                   .job = std::move(job),
                                   .local_rank = local_rank,
                                   .local_ranks = local_world_size,
                                   .start_timeout_ns = start_timeout_s * 1'000'000'000};
          },
          nb::arg("socket"), nb::arg("job"), nb::arg("local_rank"), nb::arg("local_world_size"),
          nb::arg("start_timeout_s"));
}

void BindPyLoader(nb::module_& module) {
  nb::class_<PyLoader>(module, "Loader", "Runs a plan in this process, or by a node process.")
      .def(nb::init<const PyIndex&, const LoaderOptions&, const std::optional<NodeAddress>&>(),
           nb::arg("index"), nb::arg("options"), nb::arg("node") = nb::none())
      .def_prop_ro(
          "schema",
          [](const PyLoader& self) {
            nb::list list;
            for (const BatchField& field : self.schema()) {
              list.append(nb::make_tuple(field.name, std::string(DTypeName(field.dtype)),
                                         nb::tuple(nb::cast(field.shape)), field.ragged));
            }
            return list;
          },
          nb::sig("def schema(self) -> list[tuple[str, str, tuple[int, ...], bool]]"))
      .def_prop_ro("steps_per_epoch",
                   [](const PyLoader& self) { return self.loader()->steps_per_epoch(); })
      .def_prop_ro(
          "order_parameters",
          [](const PyLoader& self) { return ToDict(self.loader()->order_parameters()); },
          nb::sig("def order_parameters(self) -> dict[str, int | str]"))
      .def_prop_ro(
          "expected_inflation",
          [](const PyLoader& self) -> nb::object {
            const std::shared_ptr<BatchSource> loader = self.loader();
            const std::optional<ExpectedInflation>& expected = loader->expected_inflation();
            if (!expected.has_value()) return nb::none();
            nb::dict dict;
            dict["of_blocks"] = expected->of_blocks;
            dict["sharing"] = expected->sharing;
            dict["correlation"] = nb::cast(expected->correlation);
            dict["of_labels"] = nb::cast(expected->of_labels);
            return dict;
          },
          nb::sig("def expected_inflation(self) -> dict[str, float | None] | None"))
      .def("start", &PyLoader::Start, nb::arg("epoch"), nb::arg("step"))
      .def("start_list", &PyLoader::StartList, nb::arg("ids"), nb::arg("batch_ends"),
           nb::arg("epoch"), nb::arg("first_step"))
      .def("next", &PyLoader::Next, "The next batch, or None after the last.")
      .def("stop", &PyLoader::Stop)
      .def("close", &PyLoader::Close)
      .def("explain", &PyLoader::Explain, nb::arg("epoch"), nb::arg("step"),
           nb::sig("def explain(self, epoch: int, step: int) "
                   "-> list[tuple[int, int, str, str, str, int, int, str]]"),
           "(slot, sample, field, source, object, offset, size, actual source) of every row")
      .def("explain_rows", &PyLoader::ExplainRows, nb::arg("samples"),
           nb::sig("def explain_rows(self, samples: Sequence[int]) "
                   "-> list[tuple[int, int, str, str, str, int, int, str]]"))
      .def("tiers_in_trouble", &PyLoader::TiersInTrouble,
           nb::sig("def tiers_in_trouble(self) -> list[tuple[str, str]]"),
           "(name, reason) of the tiers that failed")
      .def("learned", &PyLoader::Learned,
           nb::sig("def learned(self) -> list[tuple[int, float, int, int, float]]"),
           "What preprocessing was seen to take: (transform, bytes, threads, count, seconds)")
      .def("stats", &PyLoader::Stats, nb::sig("def stats(self) -> dict[str, Any]"))
      .def("step_times", &PyLoader::StepTimes,
           nb::sig("def step_times(self) -> dict[str, numpy.typing.NDArray[numpy.int64]]"),
           "The newest batches that were taken, lane after lane: a column a property");
}

}  // namespace

std::shared_ptr<BatchSource> LoaderOf(nanobind::handle loader) {
  return nb::cast<const PyLoader&>(loader).loader();
}

void BindLoader(nb::module_& module) {
  BindOrderSpec(module);
  BindOptions(module);
  BindBatch(module);
  BindNodeAddress(module);
  BindPyLoader(module);
  module.def(
      "placements",
      [] {
        std::vector<std::string> names;
        for (const PlacementFactory* each : AllPlacements()) names.emplace_back(each->name());
        return names;
      },
      "Names of the placements.");
  module.def("memory_limit_bytes", &MemoryLimitBytes,
             "Bytes of memory that this process may use: the machine's, or its cgroup's.");
  module.def("permutation", &PermutationArray, nb::arg("size"), nb::arg("seed"), nb::arg("epoch"),
             nb::arg("stream"), "The permutation of [0, size) that orders use: docs/orders.md.");
}

}  // namespace headrace::bindings
