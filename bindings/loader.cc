// Loader, batches; and the permutation that orders are made of.

#include "headrace/loader.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/format/errors.h"
#include "base/memory/guarded_copy.h"
#include "base/mutex.h"
#include "base/prng.h"
#include "convert/expected_inflation.h"
#include "convert/keywords.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "gil/ending.h"
#include "gil/gil.h"
#include "index.h"
#include "loader.h"
#include "loader/machine/machine.h"
#include "loader/session/session.h"
#include "loader_stats.h"
#include "module.h"
#include "node/client/answer_patience.h"
#include "node/client/remote_loader.h"
#include "plan/block_map.h"
#include "plan/permutation.h"
#include "plan/placement/placement.h"
#include "status.h"
#include "store/store_table.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// How long Close() waits for other threads to leave the loader.
constexpr std::int64_t kLeaveNs = 300'000'000;

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

// A row of UTF-8 as a str.
nb::object TextOf(const PyBatch& self, const BatchField& field, std::size_t slot,
                  std::span<const std::byte> row) {
  PyObject* const text = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(row.data()),
                                              static_cast<Py_ssize_t>(row.size()), nullptr);
  if (text != nullptr) return nb::steal(text);
  if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) == 0) throw nb::python_error();
  const nb::python_error error;
  ThrowStatus(
      DataLoss("epoch {} step {} sample {} field {}: its text is not UTF-8 ({}); write it "
               "as UTF-8, or leave the field out with Output.fields",
               self.batch->epoch, self.batch->step, Raw(self.batch->samples[slot]), field.name,
               error.what()));
}

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
  std::vector<std::size_t> shape = {0};
  shape.insert(shape.end(), field.shape.begin(), field.shape.end());
  for (std::size_t slot = 0; slot < rows.rows.size(); ++slot) {
    const std::span<std::byte> row = rows.rows[slot];
    if (field.is_text) {
      list.append(TextOf(self, field, slot, row));
      continue;
    }
    shape[0] = row.size() / field.row_bytes;
    list.append(View(self.batch, row, shape, field.dtype));
  }
  return list;
}

OutArray<std::uint64_t> Samples(const PyBatch& self) {
  std::vector<std::uint64_t> ids;
  ids.reserve(self.batch->samples.size());
  for (const SampleId id : self.batch->samples) ids.push_back(Raw(id));
  return ToArray(std::move(ids));
}

using Patience = std::shared_ptr<AnswerPatience>;

// The node process may answer late, now and later: meanwhile this checks for Ctrl-C, and whether
// another thread closes the loader. ThrowStatus() raises the exception of a signal handler.
std::shared_ptr<RemoteLoader> OpenAtNode(const PyIndex& index, const LoaderOptions& options,
                                         NodeAddress node, const Patience& patience) {
  node.index_path = std::filesystem::absolute(index.path).string();
  node.fingerprint = index.index->fingerprint();
  const auto keep_waiting = [patience] {
    return patience->GoesOn([] {
      const GilAcquire acquired;
      return SignalsPass();
    });
  };
  return ValueOrThrow(WithoutGil([&]() -> Result<std::shared_ptr<RemoteLoader>> {
    HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<RemoteLoader> loader,
                              RemoteLoader::Open(node, options, keep_waiting));
    return loader;
  }));
}

class PyLoader {
 public:
  PyLoader(const PyIndex& index, const LoaderOptions& options,
           const std::optional<NodeAddress>& node) {
    std::shared_ptr<BatchSource> loader;
    if (node.has_value()) {
      std::shared_ptr<RemoteLoader> remote = OpenAtNode(index, options, *node, patience_);
      remote_ = remote;
      loader = std::move(remote);
    } else {
      loader = ValueOrThrow(WithoutGil([&]() -> Result<std::shared_ptr<BatchSource>> {
        HEADRACE_ASSIGN_OR_RETURN(std::shared_ptr<BatchSource> opened,
                                  Loader::Open(index.index, options));
        return opened;
      }));
    }
    schema_ = loader->facts().schema;
    MutexLock lock(mutex_);
    loader_ = std::move(loader);
  }

  // Does not check for signals.
  ~PyLoader() {
    CloseWithin(kCloseNs, [] { return true; });
  }
  PyLoader(const PyLoader&) = delete;
  PyLoader& operator=(const PyLoader&) = delete;

  // A lease: another thread may close the loader meanwhile.
  [[nodiscard]] std::shared_ptr<BatchSource> loader() const {
    StopAtExit();
    std::shared_ptr<BatchSource> loader = Lease();
    if (loader == nullptr) {
      ThrowStatus(Status(StatusCode::kFailedPrecondition, "the loader is closed"));
    }
    return loader;
  }
  [[nodiscard]] const std::vector<BatchField>& schema() const { return schema_; }

  void Start(std::uint64_t epoch, std::uint64_t step) {
    Begin([=](BatchSource& loader) { return loader.Start({.epoch = epoch, .step = step}); });
  }

  void StartList(const InArray<std::uint64_t>& ids, const InArray<std::uint64_t>& ends,
                 std::uint64_t epoch, std::uint64_t first_step) {
    ListOrderOptions list{.epoch = epoch, .first_step = first_step};
    for (std::size_t i = 0; i < ids.size(); ++i) list.ids.push_back(SampleId{ids.data()[i]});
    list.batch_ends.assign(ends.data(), ends.data() + ends.size());
    Begin([&](BatchSource& loader) { return loader.StartList(std::move(list)); });
  }

  std::optional<PyBatch> Next() {
    InstallCopyGuard();  // The program may have set a handler of its own since the last batch.
    std::shared_ptr<BatchSource> loader = this->loader();
    for (;;) {
      TakenBatch got = ValueOrThrow(
          InCore(loader, [&](BatchSource& core) { return core.Next(kSignalsEveryNs); }));
      if (got.ended) return std::nullopt;
      if (got.batch != nullptr) return PyBatch{std::move(got.batch), schema_};
      if (!SignalsPass()) throw nb::python_error();
      if (loader == nullptr) loader = this->loader();  // Another thread closes it.
    }
  }

  // Waits for reads in flight until kStopNs after the run was first asked to end, or until a signal
  // handler raises.
  void Stop() {
    StopAtExit();
    std::shared_ptr<BatchSource> loader = Lease();
    if (loader == nullptr) return;
    if (!StopWithin(*loader, kStopNs, SignalsPass, [&] { loader.reset(); })) {
      throw nb::python_error();
    }
  }

  // Ends calls that wait for an answer, then waits for the loader's threads, which need no GIL:
  // until kCloseNs after the run was first asked to end, or until a signal handler raises. From
  // then on Stats() returns the last figures.
  void Close() {
    if (!CloseWithin(kCloseNs, SignalsPass)) throw nb::python_error();
  }

  // Where the node processes of other nodes reach this rank's; empty: nowhere.
  [[nodiscard]] std::string PeerAddress() const {
    const std::shared_ptr<RemoteLoader> remote = remote_.lock();
    return remote == nullptr ? "" : remote->peer_address();
  }
  void ConnectNodes(PeerGroup group) const {
    ThrowIfError(WithoutGil([&] {
      const std::shared_ptr<RemoteLoader> remote = remote_.lock();
      if (remote != nullptr) return remote->ConnectNodes(std::move(group));
      return Status(
          StatusCode::kFailedPrecondition,
          "connecting nodes: there is no node process; give the loader job=hr.Job(node=hr.Node())");
    }));
  }

  nb::list Explain(std::uint64_t epoch, std::uint64_t step) const;
  nb::list ExplainRows(const std::vector<std::uint64_t>& ids) const;
  nb::dict Stats() const;
  nb::dict StepTimes() const;
  nb::list TiersInTrouble() const;
  nb::list DecodeTimes() const;

 private:
  template <typename Start>
  void Begin(Start start) {
    std::shared_ptr<BatchSource> loader = this->loader();
    const auto ended = [&]() -> Result<bool> {
      if (loader->Stop(kSignalsEveryNs)) return true;
      if (!patience_->closing()) return false;
      return Status(StatusCode::kCancelled, "starting a run: the loader was closed");
    };
    AwaitRunBefore(ended, [&] { loader.reset(); });
    if (patience_->closing()) loader = this->loader();  // Throws, as soon as it is closed.
    ThrowIfError(InCore(loader, start));
  }

  // What `call` returns of the loader. If it was closed meanwhile, drops `loader` without the GIL:
  // this may be the last reference, and the destructor takes time.
  template <typename Call>
  std::invoke_result_t<Call, BatchSource&> InCore(std::shared_ptr<BatchSource>& loader,
                                                  Call call) const {
    return WithoutGil(
        [&] {
          auto result = call(*loader);
          if (patience_->closing()) loader.reset();
          return result;
        },
        [&] { loader.reset(); });
  }

  template <typename GoesOn>
  bool CloseWithin(std::int64_t timeout_ns, GoesOn goes_on) {
    patience_->BeginClose();
    std::shared_ptr<BatchSource> loader = Lease();
    if (loader == nullptr) return true;
    const bool passed = StopWithin(*loader, timeout_ns, goes_on, [&] { loader.reset(); });
    // The exception of a handler stays set: nothing below touches Python.
    WithoutGil([&] {
      // If they do not come, Stats() returns those of the newest call.
      Result<LoaderStats> last = AnswerPatience::AskLast([&] { return loader->stats(); });
      {
        MutexLock lock(mutex_);
        if (last.ok()) last_ = std::move(last).value();
        loader_.reset();
      }
      if (!passed) loader->Abandon();
      PollUntil([&] { return loader.use_count() == 1; }, kLeaveNs);  // Other threads were woken.
      loader.reset();
    });
    return passed;
  }

  static nb::list Listed(const std::vector<PlannedRow>& rows) {
    nb::list list;
    for (const PlannedRow& row : rows) {
      list.append(nb::make_tuple(row.slot, Raw(row.sample), row.field, ToMessage(row.source),
                                 row.object, row.range.offset, row.range.size,
                                 ToMessage(row.actual)));
    }
    return list;
  }

  // The loader's answer to `ask`. If another thread closes the loader meanwhile, this may be the
  // last reference: drop it without the GIL, because the destructor takes time.
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

  const Patience patience_ = std::make_shared<AnswerPatience>();
  mutable Mutex mutex_;
  std::shared_ptr<BatchSource> loader_ HEADRACE_GUARDED_BY(mutex_);  // null: closed
  std::weak_ptr<RemoteLoader> remote_;  // the same, if it is at a node process
  mutable std::optional<LoaderStats> last_ HEADRACE_GUARDED_BY(mutex_);  // the newest known
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
nb::list PyLoader::DecodeTimes() const {
  nb::list list;
  const auto rows = Asked([](BatchSource& loader) { return loader.decode_times(); });
  for (const PreprocessRow& row : rows) {
    list.append(nb::make_tuple(row.transform, row.bytes, row.threads, row.count, row.seconds));
  }
  return list;
}

nb::list PyLoader::TiersInTrouble() const {
  std::shared_ptr<BatchSource> loader = this->loader();
  const std::vector<NamedTierStats> tiers = WithoutGil([&] {
    std::vector<NamedTierStats> answer = loader->tier_stats();
    loader.reset();  // As Asked().
    return answer;
  });
  nb::list list;
  for (const NamedTierStats& tier : tiers) {
    if (tier.stats.degraded) {
      list.append(nb::make_tuple(ToMessage(tier.name), ToMessage(tier.stats.degraded_reason)));
    }
  }
  return list;
}

nb::dict PyLoader::StepTimes() const {
  return StepTimesDict(Asked([](BatchSource& loader) { return loader.step_times(); }));
}

nb::dict PyLoader::Stats() const {
  const auto of_closed = [this]() -> std::optional<LoaderStats> {
    MutexLock lock(mutex_);
    return loader_ == nullptr ? last_ : std::nullopt;
  };
  if (const std::optional<LoaderStats> last = of_closed()) return StatsDict(*last);
  std::shared_ptr<BatchSource> loader = this->loader();
  std::optional<LoaderStats> stats;
  Status failed;
  WithoutGil([&] {
    Result<LoaderStats> answer = loader->stats();
    if (answer.ok()) {
      stats = std::move(answer).value();
    } else {
      failed = answer.status();
    }
    loader.reset();  // As Asked().
  });
  if (!stats.has_value()) stats = of_closed();  // It may have been closed meanwhile.
  if (!stats.has_value()) ThrowStatus(failed);
  nb::dict dict = StatsDict(*stats);
  MutexLock lock(mutex_);
  if (loader_ != nullptr) last_ = std::move(stats);
  return dict;
}

OutArray<std::uint64_t> PermutationArray(std::uint64_t size, std::uint64_t seed,
                                         std::uint64_t epoch, std::uint32_t stream) {
  if (epoch >= kEpochsMax) throw nb::value_error("epoch must be below 2**24");
  std::vector<std::uint64_t> list(size);
  {
    const GilRelease released;
    const Permutation permutation(size, seed, epoch, static_cast<RandomStream>(stream & 0xff));
    for (std::uint64_t i = 0; i < size; ++i) list[i] = permutation.At(i);
  }
  return ToArray(std::move(list));
}

void ConnectNodes(const PyLoader& self, std::uint32_t node, const std::vector<Text>& addresses,
                  const Text& token, std::pair<std::int64_t, std::int64_t> answer_and_begin_s,
                  std::uint64_t rate_bytes_per_s) {
  PeerGroup group{.node = node,
                  .addresses = {},
                  .token = token.bytes(),
                  .answer_ns = answer_and_begin_s.first * 1'000'000'000,
                  .begin_ns = answer_and_begin_s.second * 1'000'000'000,
                  .rate_bytes_per_s = rate_bytes_per_s};
  for (const Text& address : addresses) group.addresses.push_back(address.bytes());
  self.ConnectNodes(std::move(group));
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

void BindPyLoader(nb::module_& module) {
  nb::class_<PyLoader>(module, "Loader", "Runs a plan in this process, or by a node process.")
      .def(nb::init<const PyIndex&, const LoaderOptions&, const std::optional<NodeAddress>&>(),
           nb::arg("index"), nb::arg("options"), nb::arg("node") = nb::none())
      .def_prop_ro(
          "schema",
          [](const PyLoader& self) {
            nb::list list;
            for (const BatchField& field : self.schema()) {
              const std::string_view dtype = field.is_text ? "str" : DTypeName(field.dtype);
              list.append(nb::make_tuple(field.name, std::string(dtype),
                                         nb::tuple(nb::cast(field.shape)), field.ragged));
            }
            return list;
          },
          nb::sig("def schema(self) -> list[tuple[str, str, tuple[int, ...], bool]]"))
      .def_prop_ro("steps_per_epoch",
                   [](const PyLoader& self) { return self.loader()->facts().steps_per_epoch; })
      .def_prop_ro(
          "order_parameters",
          [](const PyLoader& self) { return ToDict(self.loader()->facts().order_parameters); },
          nb::sig("def order_parameters(self) -> dict[str, int | str]"))
      .def_prop_ro(
          "order_origins",
          [](const PyLoader& self) { return ToDict(self.loader()->facts().order_origins); },
          nb::sig("def order_origins(self) -> dict[str, int | str]"))
      .def_prop_ro(
          "expected_inflation",
          [](const PyLoader& self) { return ToObject(self.loader()->facts().inflation); },
          nb::sig("def expected_inflation(self) -> dict[str, float | None] | None"))
      .def_prop_ro("peer_address", &PyLoader::PeerAddress)
      .def("connect_nodes", &ConnectNodes, nb::arg("node"), nb::arg("addresses"), nb::arg("token"),
           nb::arg("answer_and_begin_s"), nb::arg("rate_bytes_per_s"),
           "Tells the node process where those of all nodes are.")
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
      .def("decode_times", &PyLoader::DecodeTimes,
           nb::sig("def decode_times(self) -> list[tuple[int, float, int, int, float]]"),
           "What preprocessing was seen to take: (transform, bytes, threads, count, seconds)")
      .def("stats", &PyLoader::Stats, nb::sig("def stats(self) -> dict[str, Any]"),
           "Once the loader is closed, the last ones.")
      .def("step_times", &PyLoader::StepTimes,
           nb::sig("def step_times(self) -> dict[str, numpy.typing.NDArray[numpy.int64]]"),
           "The newest batches that were taken, lane after lane: a column a property");
}

}  // namespace

std::shared_ptr<BatchSource> LoaderOf(nanobind::handle loader) {
  return nb::cast<const PyLoader&>(loader).loader();
}

void BindLoader(nb::module_& module) {
  BindBatch(module);
  BindPyLoader(module);
  module.def(
      "placements",
      [] {
        std::vector<std::string> names;
        for (const PlacementFactory* each : Placements().rows()) names.emplace_back(each->name());
        return names;
      },
      "Names of the placements, the default first.");
  module.def(
      "placement_keeps_blocks",
      [](const Text& name) { return ValueOrThrow(Placements().Get(name.bytes()))->keeps_blocks(); },
      nb::arg("name"), "Whether tiers are of use to it.");
  module.def(
      "stores",
      [] {
        std::vector<std::string> names = {std::string(kAnyStore)};
        for (const StoreFactory* each : Stores().rows()) names.emplace_back(each->name());
        return names;
      },
      "What io= may be: a store, or the first that suits.");
  module.def("memory_limit_bytes", &MemoryLimitBytes,
             "Bytes of memory that this process may use: the machine's, or its cgroup's.");
  module.def(
      "errno_text", &ErrnoText, nb::arg("error"),
      "What the system says of an errno; of EACCES also who lacks permission, and a remedy.");
  module.def("permutation", &PermutationArray, nb::arg("size"), nb::arg("seed"), nb::arg("epoch"),
             nb::arg("stream"),
             "The permutation of [0, size) that orders use: headrace docs orders.");
}

}  // namespace headrace::bindings
