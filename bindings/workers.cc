// WorkerPool, which runs Python transforms in worker processes; ReaderPool, whose workers read the
// samples of a dataset in Python; and WorkerChannel, a worker's end.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/clock.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/process_id.h"
#include "convert/plain.h"
#include "convert/text.h"
#include "gil/ending.h"
#include "loader.h"
#include "loader/batch_queue.h"
#include "module.h"
#include "status.h"
#include "workers/key_batch.h"
#include "workers/worker_channel.h"
#include "workers/worker_host.h"
#include "workers/worker_messages.h"
#include "workers/worker_pool.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// Memory that `owner` keeps. The capsule runs no Python: views may die on any thread, after the
// interpreter too.
template <typename Owner>
nb::object BytesView(const std::shared_ptr<Owner>& owner, std::span<std::byte> bytes) {
  auto lease = std::make_unique<std::shared_ptr<Owner>>(owner);
  nb::capsule capsule(lease.get(), [](void* pointer) noexcept {
    delete static_cast<std::shared_ptr<Owner>*>(pointer);
  });
  static_cast<void>(lease.release());  // the capsule's, from here on
  return nb::cast(Bytes(reinterpret_cast<std::uint8_t*>(bytes.data()), {bytes.size()}, capsule));
}

nb::bytes ToBytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

using PyTransformed = std::shared_ptr<TransformedBatch>;

OutArray<std::uint64_t> SampleIds(const std::vector<SampleId>& samples) {
  std::vector<std::uint64_t> ids;
  ids.reserve(samples.size());
  for (const SampleId id : samples) ids.push_back(Raw(id));
  return ToArray(std::move(ids));
}

struct PyTransformedBatch {
  PyTransformed batch;
};

nb::tuple Leaf(const PyTransformedBatch& self, std::size_t position) {
  const PyTransformed& batch = self.batch;
  if (position >= batch->layout.leaves.size()) throw nb::index_error("no such leaf");
  const OutputLeaf& leaf = batch->layout.leaves[position];
  const int kind = static_cast<int>(leaf.kind);
  const std::span<std::byte> memory = batch->memory.bytes();
  const auto view = [&](std::uint64_t offset, std::uint64_t bytes) {
    return BytesView(batch, memory.subspan(offset, bytes));
  };
  if (leaf.kind == OutputLeaf::Kind::kObject) return nb::make_tuple(kind);
  if (leaf.kind != OutputLeaf::Kind::kList) {
    const nb::object rows = view(leaf.offset, leaf.row_bytes() * batch->layout.rows);
    return nb::make_tuple(kind, leaf.dtype, nb::tuple(nb::cast(leaf.dims)), rows,
                          nb::cast(ToArray(leaf.row_dims)));
  }
  nb::list rows;
  for (std::size_t row = 0; row < leaf.row_offsets.size(); ++row) {
    const auto begin = leaf.row_dims.begin() + static_cast<std::ptrdiff_t>(row * leaf.rank);
    const std::vector<std::uint64_t> dims(begin, begin + static_cast<std::ptrdiff_t>(leaf.rank));
    std::uint64_t bytes = leaf.item_bytes;
    for (const std::uint64_t dim : dims) bytes *= dim;
    rows.append(nb::make_tuple(nb::tuple(nb::cast(dims)), view(leaf.row_offsets[row], bytes)));
  }
  return nb::make_tuple(kind, leaf.dtype, rows);
}

const char* KindName(TransformFailure::Kind kind) {
  switch (kind) {
    case TransformFailure::Kind::kTransform:
      return "transform";
    case TransformFailure::Kind::kShape:
      return "shape";
    case TransformFailure::Kind::kStart:
      return "start";
    case TransformFailure::Kind::kWorkerLost:
      return "lost";
  }
  return "lost";
}

nb::object FailureDict(const TransformFailure& failure) {
  nb::list tasks;
  for (const TaskSamples& each : failure.tasks) {
    tasks.append(nb::make_tuple(each.epoch, each.step, each.first_slot, Plain(each.samples)));
  }
  nb::dict dict;
  dict["kind"] = KindName(failure.kind);
  dict["worker"] = failure.worker;
  dict["text"] = ToMessage(failure.text);
  dict["pickle"] = ToBytes(failure.pickle);
  dict["tasks"] = tasks;
  return dict;
}

// Takes the sockets over, also if it throws.
WorkerPool::Connections ToConnections(const std::vector<int>& sockets) {
  std::vector<UniqueFd> owned;
  owned.reserve(sockets.size());
  for (const int fd : sockets) owned.emplace_back(fd);
  WorkerPool::Connections connections;
  for (UniqueFd& fd : owned) {
    connections.push_back(ValueOrThrow(IpcConnection::FromFd(std::move(fd))));
  }
  return connections;
}

WorkerPoolOptions ToOptions(nb::handle loader, bool whole_batches, const Text& ragged_name,
                            std::uint32_t batches_max, std::uint64_t memory_bytes) {
  const std::shared_ptr<BatchSource> core = LoaderOf(loader);
  WorkerPoolOptions options{.schema = core->facts().schema,
                            .form = {.whole_batches = whole_batches},
                            .batches_max = batches_max,
                            .memory_bytes = memory_bytes};
  const std::string ragged = ragged_name.bytes();
  if (ragged == "pad") options.form.ragged = RaggedRows::kPad;
  if (ragged == "list") options.form.ragged = RaggedRows::kList;
  return options;
}

// The pool between a loader, which may be replaced, and Python.
class PyWorkerPool {
 public:
  PyWorkerPool(nb::handle loader, const std::vector<int>& sockets, bool whole_batches,
               const Text& ragged, std::uint32_t batches_max, std::uint64_t memory_bytes) {
    WorkerPool::Connections connections = ToConnections(sockets);
    std::shared_ptr<WorkerPool> pool = ValueOrThrow(
        WorkerPool::Make(ToOptions(loader, whole_batches, ragged, batches_max, memory_bytes),
                         std::move(connections)));
    host_ = std::make_unique<WorkerHost>(std::move(pool), LoaderOf(loader));
  }
  ~PyWorkerPool() {
    Close();
    if (ProcessId() == pid_) return;
    // In a forked child: the threads that the destructors would wait for are the parent's.
    // NOLINTNEXTLINE(bugprone-unused-return-value): left to the parent on purpose
    (void)host_.release();
  }
  PyWorkerPool(const PyWorkerPool&) = delete;
  PyWorkerPool& operator=(const PyWorkerPool&) = delete;

  void Attach(nb::handle loader) { ChangeLoader(LoaderOf(loader)); }

  // Lets go of the loader, whose last holder this may be. Nothing starts until Attach().
  void Detach() { ChangeLoader(nullptr); }

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

  // A batch, or why there is none, or nothing after the last.
  nb::object Next() {
    WorkerHost::Lease lease = LeaseOrThrow();
    for (;;) {
      Result<WorkerPool::Taken> taken =
          WithoutGil([&] { return lease.pool->Next(kSignalsEveryNs); }, [&] { lease = {}; });
      WorkerPool::Taken got = ValueOrThrow(std::move(taken));
      if (got.ended) return nb::none();
      if (got.failure.has_value()) return FailureDict(*got.failure);
      if (got.batch != nullptr) return nb::cast(PyTransformedBatch{std::move(got.batch)});
      if (!SignalsPass()) throw nb::python_error();
    }
  }

  void Stop() {
    if (is_ours()) WithoutGil([&] { host_->Stop(kStopNs); });
  }

  // Ends the connections: workers end by themselves. Does not wait for reads.
  void Close() {
    if (is_ours()) WithoutGil([&] { host_->Close(); });
  }

  [[nodiscard]] bool broken() const {
    if (!is_ours()) return true;
    const WorkerHost::Lease lease = host_->lease();
    return lease.pool == nullptr || lease.pool->broken();
  }

  [[nodiscard]] nb::dict Stats() const {
    return nb::borrow<nb::dict>(Plain(LeaseOrThrow().pool->stats()));
  }

 private:
  // Not in a forked child: the threads are its parent's.
  [[nodiscard]] bool is_ours() const { return ProcessId() == pid_; }

  [[nodiscard]] WorkerHost::Lease LeaseOrThrow() const {
    StopAtExit();
    if (!is_ours()) {
      ThrowStatus(Status(StatusCode::kFailedPrecondition,
                         "the workers are another process's: make a loader after the fork"));
    }
    WorkerHost::Lease lease = host_->lease();
    if (lease.pool == nullptr) ThrowStatus(Closed());
    return lease;
  }

  void ChangeLoader(std::shared_ptr<BatchSource> loader) {
    if (!is_ours()) return;
    WithoutGil([&] { host_->Attach(std::move(loader)); });
  }

  template <typename StartLoader>
  void Begin(StartLoader start) {
    static_cast<void>(LeaseOrThrow());
    WorkerHost::Lease lease = WithoutGil([&] { return host_->Prepare(); });
    if (lease.loader == nullptr) ThrowStatus(Closed());
    const auto let_go = [&] { lease = {}; };
    AwaitRunBefore([&] { return host_->AwaitRunBefore(lease, kSignalsEveryNs); }, let_go);
    ThrowIfError(WithoutGil(
        [&] {
          Status started = host_->Start(lease, start);
          if (!started.ok()) let_go();  // This may be the last reference.
          return started;
        },
        let_go));
  }

  static Status Closed() { return {StatusCode::kFailedPrecondition, "the loader is closed"}; }

  const pid_t pid_ = ProcessId();
  std::unique_ptr<WorkerHost> host_;
};

// The pool between a program, which says by keys what to read, and the workers that read it.
//
// Thread safety: any thread, but Next() one at a time; Begin() after Halt() or first.
class PyReaderPool {
 public:
  PyReaderPool(const std::vector<int>& sockets, bool whole_batches, bool in_order,
               std::uint32_t batches_max, std::uint32_t threads) {
    WorkerPool::Connections connections = ToConnections(sockets);
    WorkerPoolOptions options{.schema = KeySchema(),
                              .form = {.whole_batches = whole_batches,
                                       .ragged = RaggedRows::kWhole,
                                       .in_order = in_order},
                              .batches_max = batches_max,
                              .memory_bytes = std::nullopt,
                              .threads = threads};
    keys_ = ValueOrThrow(BufferPool::MakeShared(kKeyBytes));
    pool_ = ValueOrThrow(WorkerPool::Make(std::move(options), std::move(connections)));
  }
  ~PyReaderPool() {
    Close();
    if (is_ours()) return;
    // In a forked child: the threads that the destructors would wait for are the parent's.
    // NOLINTNEXTLINE(bugprone-unused-return-value): left to the parent on purpose
    (void)std::make_unique<std::shared_ptr<WorkerPool>>(std::move(pool_)).release();
  }
  PyReaderPool(const PyReaderPool&) = delete;
  PyReaderPool& operator=(const PyReaderPool&) = delete;

  // Returns the number of the run, for Add().
  std::uint64_t Begin() {
    const std::shared_ptr<WorkerPool> pool = Now().pool;
    const auto queue = std::make_shared<BatchQueue>();
    pool->Begin([queue](std::int64_t timeout_ns) { return queue->Take(timeout_ns); });
    MutexLock lock(mutex_);
    queue_ = queue;
    return ++run_;
  }

  // Of a run that is over, nothing.
  void Add(std::uint64_t run, std::uint64_t epoch, std::uint64_t step, std::uint64_t first,
           const nb::list& keys) {
    const Using now = Now();
    if (now.run != run) return;
    KeyBatchHead head{.epoch = epoch, .step = step};
    std::vector<std::string_view> views;
    for (const nb::handle key : keys) {
      const auto bytes = nb::cast<nb::bytes>(key);  // The list keeps it.
      views.emplace_back(bytes.c_str(), bytes.size());
      head.samples.push_back(SampleId{first + head.samples.size()});
    }
    now.queue->OnBatch(
        ValueOrThrow(WithoutGil([&] { return MakeKeyBatch(*keys_, std::move(head), views); })));
  }

  // A batch, or why there is none; nothing after `timeout_ns` (negative: no limit).
  nb::object Next(std::int64_t timeout_ns) {
    std::shared_ptr<WorkerPool> pool = Now().pool;
    const MonotonicClock clock;
    const std::int64_t end_ns = timeout_ns < 0 ? 0 : clock.NowNanos() + timeout_ns;
    for (;;) {
      const std::int64_t left_ns =
          timeout_ns < 0 ? kSignalsEveryNs : std::max<std::int64_t>(end_ns - clock.NowNanos(), 0);
      Result<WorkerPool::Taken> taken = WithoutGil(
          [&] { return pool->Next(std::min(left_ns, kSignalsEveryNs)); }, [&] { pool = nullptr; });
      WorkerPool::Taken got = ValueOrThrow(std::move(taken));
      if (got.failure.has_value()) return FailureDict(*got.failure);
      if (got.batch != nullptr) return nb::cast(PyTransformedBatch{std::move(got.batch)});
      if (!SignalsPass()) throw nb::python_error();
      if (left_ns == 0) return nb::none();
    }
  }

  // Drops what was added and not taken. Returns whether no worker computes any more, within the
  // time; then memory of results that nobody holds returns to the system.
  bool Halt(std::int64_t timeout_ns) {
    const Using now = Used();
    if (now.pool == nullptr) return false;
    return WithoutGil([&] {
      now.pool->Halt([&] {
        if (now.queue != nullptr) now.queue->Close();
      });
      if (!now.pool->AwaitIdle(timeout_ns)) return false;
      now.pool->ReturnFreeMemory();
      return true;
    });
  }

  // Call it before the process forks: the child's batches stay as they are.
  void RenewMemory() {
    const Using now = Used();
    if (now.pool != nullptr) WithoutGil([&] { now.pool->RenewMemory(); });
  }

  // Ends the connections: workers end by themselves.
  void Close() {
    if (!is_ours()) return;
    static_cast<void>(Halt(0));
    std::shared_ptr<WorkerPool> pool;
    {
      MutexLock lock(mutex_);
      pool = std::move(pool_);
    }
    WithoutGil([&] { pool = nullptr; });
  }

  [[nodiscard]] nb::dict Stats() const { return nb::borrow<nb::dict>(Plain(Now().pool->stats())); }

 private:
  // What a call uses. Another thread may close the pool meanwhile.
  struct Using {
    std::shared_ptr<WorkerPool> pool;   // null: closed, or another process's
    std::shared_ptr<BatchQueue> queue;  // null before Begin()
    std::uint64_t run = 0;
  };

  // Of keys that wait, or are read: with what files hold that were read ahead. More is allowed.
  static constexpr std::uint64_t kKeyBytes = 16U << 20;

  // Not in a forked child: the threads are its parent's.
  [[nodiscard]] bool is_ours() const { return ProcessId() == pid_; }

  [[nodiscard]] Using Used() const {
    if (!is_ours()) return {};
    MutexLock lock(mutex_);
    return {.pool = pool_, .queue = queue_, .run = run_};
  }

  [[nodiscard]] Using Now() const {
    StopAtExit();
    Using now = Used();
    if (now.pool == nullptr) {
      ThrowStatus(Status(StatusCode::kFailedPrecondition,
                         "reading batches: the workers have ended; iterate the "
                         "DataLoader again"));
    }
    return now;
  }

  const pid_t pid_ = ProcessId();
  std::shared_ptr<BufferPool> keys_;
  mutable Mutex mutex_;
  std::shared_ptr<BatchQueue> queue_ HEADRACE_GUARDED_BY(mutex_);
  std::uint64_t run_ HEADRACE_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<WorkerPool> pool_ HEADRACE_GUARDED_BY(mutex_);
};

nb::object Received(WorkerChannel& channel) {
  Result<std::optional<WorkerChannel::Received>> taken =
      WithoutGil([&] { return channel.Receive(); });
  std::optional<WorkerChannel::Received> received = ValueOrThrow(std::move(taken));
  if (!received.has_value()) return nb::none();
  nb::list fresh;
  for (const auto& [number, memory] : received->fresh) {
    fresh.append(nb::make_tuple(number, BytesView(memory, memory->bytes())));
  }
  return nb::make_tuple(fresh, nb::cast(received->gone),
                        nb::bytes(received->body.data(), received->body.size()));
}

void BindChannel(nb::module_& module) {
  nb::class_<WorkerChannel> channel(module, "WorkerChannel", "A worker's end of its connection.");
  channel
      .def_static(
          "open",
          [](int socket, int host) {
            return ValueOrThrow(WorkerChannel::Make(UniqueFd(socket), host)).release();
          },
          nb::arg("socket"), nb::arg("host"), nb::rv_policy::take_ownership)
      .def("receive", &Received,
           nb::sig("def receive(self) -> tuple[list[tuple[int, numpy.typing.NDArray[typing.Any]]], "
                   "list[int], bytes] | None"),
           "(memory to map by number, numbers of memory that is gone, message); None at the end")
      .def(
          "send",
          [](WorkerChannel& self, const nb::bytes& message) {
            const auto* data = static_cast<const std::byte*>(message.data());
            const std::span<const std::byte> bytes(data, message.size());
            const Status sent = WithoutGil([&] { return self.Send(bytes); });
            if (sent.code() == StatusCode::kUnavailable) return false;
            ThrowIfError(sent);
            return true;
          },
          nb::arg("message"), "False if the host is gone.");
  const auto constant = [&](const char* name, auto value) {
    channel.attr(name) = static_cast<std::uint64_t>(value);
  };
  constant("COMPUTE", TaskMessage::kCompute);
  constant("WRITE", TaskMessage::kWrite);
  constant("READY", ReplyMessage::kReady);
  constant("FAILED", ReplyMessage::kFailed);
  constant("ERROR", ReplyMessage::kError);
  constant("DONE", ReplyMessage::kDone);
  constant("SHAPED", ReplyMessage::kShaped);
  constant("UNLIKE", ReplyMessage::kUnlike);
  constant("ROWS", OutputLeaf::Kind::kRows);
  constant("PADDED", OutputLeaf::Kind::kPadded);
  constant("LIST", OutputLeaf::Kind::kList);
  constant("OBJECT", OutputLeaf::Kind::kObject);
  // Of the messages' heads, in the notation of the module struct.
  channel.attr("COMPUTE_HEAD") = FormatOf<ComputeHead>();
  channel.attr("WRITE_HEAD") = FormatOf<WriteHead>();
  channel.attr("READY_HEAD") = FormatOf<ReadyHead>();
  channel.attr("UNLIKE_HEAD") = FormatOf<UnlikeHead>();
  channel.attr("ERROR_HEAD") = FormatOf<ErrorHead>();
  channel.attr("DONE_HEAD") = FormatOf<DoneHead>();
  channel.attr("SHAPED_HEAD") = FormatOf<ShapedHead>();
  channel.attr("LEAF_HEAD") = FormatOf<LeafHead>();
  channel.attr("LEAVES_MAX") = kLeavesMax;
  channel.attr("ITEM_BYTES_MAX") = kItemBytesMax;
  channel.attr("REPLY_BYTES_MAX") = kReplyBytesMax;
}

}  // namespace

void BindWorkers(nb::module_& module) {
  BindChannel(module);
  nb::class_<PyTransformedBatch>(module, "TransformedBatch", "What workers made of a batch.")
      .def_prop_ro("epoch", [](const PyTransformedBatch& self) { return self.batch->epoch; })
      .def_prop_ro("step", [](const PyTransformedBatch& self) { return self.batch->step; })
      .def_prop_ro("ends_epoch",
                   [](const PyTransformedBatch& self) { return self.batch->ends_epoch; })
      .def_prop_ro("beyond_budget",
                   [](const PyTransformedBatch& self) { return self.batch->beyond_budget; })
      .def("samples", [](const PyTransformedBatch& self) { return SampleIds(self.batch->samples); })
      .def_prop_ro("tree",
                   [](const PyTransformedBatch& self) { return ToBytes(self.batch->layout.tree); })
      .def_prop_ro("leaf_count",
                   [](const PyTransformedBatch& self) { return self.batch->layout.leaves.size(); })
      .def("leaf", &Leaf, nb::arg("position"),
           nb::sig("def leaf(self, position: int) -> tuple[typing.Any, ...]"),
           "(kind, dtype, dims, bytes, dims of rows), or (kind, dtype, rows), or (kind,)")
      .def(
          "objects",
          [](const PyTransformedBatch& self) {
            nb::list list;
            for (const std::string& each : self.batch->objects) list.append(ToBytes(each));
            return list;
          },
          nb::sig("def objects(self) -> list[bytes]"));
  nb::class_<PyWorkerPool>(module, "WorkerPool", "Hosts the workers of a loader.")
      .def(
          nb::init<nb::handle, const std::vector<int>&, bool, const Text&, std::uint32_t,
                   std::uint64_t>(),
          nb::arg("loader"), nb::arg("sockets"), nb::arg("whole_batches"), nb::arg("ragged"),
          nb::arg("batches_max"), nb::arg("memory_bytes"),
          nb::sig("def __init__(self, loader: Loader, sockets: Sequence[int], whole_batches: bool, "
                  "ragged: str, batches_max: int, memory_bytes: int) -> None"))
      .def("attach", &PyWorkerPool::Attach, nb::arg("loader"),
           nb::sig("def attach(self, loader: Loader) -> None"))
      .def("detach", &PyWorkerPool::Detach)
      .def("start", &PyWorkerPool::Start, nb::arg("epoch"), nb::arg("step"))
      .def("start_list", &PyWorkerPool::StartList, nb::arg("ids"), nb::arg("batch_ends"),
           nb::arg("epoch"), nb::arg("first_step"))
      .def("next", &PyWorkerPool::Next,
           nb::sig("def next(self) -> TransformedBatch | dict[str, typing.Any] | None"))
      .def("stop", &PyWorkerPool::Stop)
      .def("close", &PyWorkerPool::Close)
      .def_prop_ro("broken", &PyWorkerPool::broken)
      .def("stats", &PyWorkerPool::Stats, nb::sig("def stats(self) -> dict[str, Any]"));
  nb::class_<PyReaderPool>(module, "ReaderPool", "Hosts workers that read samples by keys.")
      .def(nb::init<const std::vector<int>&, bool, bool, std::uint32_t, std::uint32_t>(),
           nb::arg("sockets"), nb::arg("whole_batches"), nb::arg("in_order"),
           nb::arg("batches_max"), nb::arg("threads"),
           nb::sig("def __init__(self, sockets: Sequence[int], whole_batches: bool, "
                   "in_order: bool, batches_max: int, threads: int) -> None"))
      .def("begin", &PyReaderPool::Begin)
      .def("add", &PyReaderPool::Add, nb::arg("run"), nb::arg("epoch"), nb::arg("step"),
           nb::arg("first"), nb::arg("keys"),
           nb::sig("def add(self, run: int, epoch: int, step: int, first: int, keys: list[bytes]) "
                   "-> None"))
      .def("next", &PyReaderPool::Next, nb::arg("timeout_ns"),
           nb::sig("def next(self, timeout_ns: int) -> TransformedBatch | dict[str, typing.Any] | "
                   "None"))
      .def("halt", &PyReaderPool::Halt, nb::arg("timeout_ns"))
      .def("renew_memory", &PyReaderPool::RenewMemory)
      .def("close", &PyReaderPool::Close)
      .def("stats", &PyReaderPool::Stats, nb::sig("def stats(self) -> dict[str, Any]"));
}

}  // namespace headrace::bindings
