// Stored bytes outside a loader: for looking at samples, packing and verifying.

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/format/errors.h"
#include "base/memory/buffer_pool.h"
#include "base/mutex.h"
#include "base/process_id.h"
#include "convert/buffer.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "loader/ending/reaper.h"
#include "loader/session/open_store.h"
#include "loader/session/session.h"
#include "module.h"
#include "status.h"
#include "store/helper_command.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

using Ids = InArray<std::uint64_t>;

// Reads through a store of its own.
//
// Thread safety: every method may be called from any thread.
// Shutdown: Close() and the destructor wait for reads up to kCloseNs; then the process's reaper
// does.
class PyStoredReader {
 public:
  PyStoredReader(const PyIndex& index, FileRemedies remedies, int reads_at_once,
                 std::uint64_t decoded_bytes) {
    OpenStoreOptions options{.remedies = std::move(remedies), .reads_at_once = reads_at_once};
    if (decoded_bytes != 0) {
      options.decoded = {.kept_bytes_max = decoded_bytes - decoded_bytes / 3,
                         .decoding_bytes_max = decoded_bytes / 3};
    }
    auto opened = WithoutGil([&] { return OpenStore(index.index, options); });
    // Whoever lets go of it last, a read that Close() overtook or Close() itself, waits no longer
    // than this for reads in flight.
    const auto destroy = [pid = pid_](OpenedStore* last) {
      // In a forked child its threads belong to the parent: leak it.
      if (ProcessId() == pid) DestroyWithin(std::shared_ptr<OpenedStore>(last), kCloseNs);
    };
    store_ = {new OpenedStore(ValueOrThrow(std::move(opened))), destroy};
  }
  ~PyStoredReader() { Close(); }
  PyStoredReader(const PyStoredReader&) = delete;
  PyStoredReader& operator=(const PyStoredReader&) = delete;

  void ReadInto(const Ids& objects, const Ids& offsets, const Ids& sizes, nb::handle target) {
    const Buffer buffer(target, /*writable=*/true);
    std::vector<Extent> extents;
    std::uint64_t bytes = 0;
    if (objects.size() != offsets.size() || objects.size() != sizes.size()) {
      ThrowStatus(
          {StatusCode::kInvalidArgument, "reading: objects, offsets, sizes must be as many"});
    }
    for (std::size_t i = 0; i < objects.size(); ++i) {
      // Not by the sum of all sizes, which may wrap.
      const std::uint64_t left = buffer.bytes().size() - bytes;
      if (sizes.data()[i] > left) {
        ThrowStatus(InvalidArgument(
            "reading range {} of {} bytes: {} are left in a buffer of {}, which must hold all", i,
            sizes.data()[i], left, buffer.bytes().size()));
      }
      extents.push_back({ObjectId{objects.data()[i]}, {offsets.data()[i], sizes.data()[i]}});
      bytes += sizes.data()[i];
    }
    if (bytes != buffer.bytes().size()) {
      ThrowStatus(InvalidArgument("reading {} bytes into a buffer of {}, which must have as many",
                                  bytes, buffer.bytes().size()));
    }
    std::optional<nb::python_error> raised;  // dies under the GIL: declared outside its release
    const auto keep_going = [&raised] {
      const GilAcquire acquire;
      if (SignalsPass()) return true;
      raised.emplace();
      return false;
    };
    Status status = WithoutGil([&]() -> Status {
      HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedStore> opened, store());
      return ReadExtents(opened->store(), extents, buffer.writable_bytes(), keep_going);
    });
    if (raised) throw nb::python_error(std::move(*raised));
    ThrowIfError(status);
  }

  void Check(std::uint64_t object) {
    ThrowIfError(WithoutGil([&]() -> Status {
      HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedStore> opened, store());
      return opened->store().CheckObject(ObjectId{object});
    }));
  }

  void CheckOpen() {
    ThrowIfError(WithoutGil([&]() -> Status {
      HEADRACE_ASSIGN_OR_RETURN(const std::shared_ptr<OpenedStore> opened, store());
      return opened->store().CheckOpen();
    }));
  }

  void Close() {
    WithoutGil([this] {
      std::shared_ptr<OpenedStore> closing;
      MutexLock lock(mutex_);
      closing.swap(store_);  // Destroyed after the lock is released.
      return true;
    });
  }

 private:
  // Errors: FailedPrecondition
  Result<std::shared_ptr<OpenedStore>> store() HEADRACE_LOCKS_EXCLUDED(mutex_) {
    if (ProcessId() != pid_) {
      return Status(StatusCode::kFailedPrecondition,
                    "reading: the reader was made before this process was forked; make another one "
                    "in this process");
    }
    MutexLock lock(mutex_);
    if (store_ == nullptr) {
      return Status(StatusCode::kFailedPrecondition,
                    "reading: the reader is closed; make another one");
    }
    return store_;
  }

  const pid_t pid_ = ProcessId();
  Mutex mutex_;
  std::shared_ptr<OpenedStore> store_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

void BindStored(nb::module_& module) {
  module.attr("decoded_bytes_kept") = DecodedLimits().kept_bytes_max;
  module.def(
      "set_helper_command",
      [](const nb::list& command) {
        std::vector<std::string> words;
        for (const nb::handle word : command) words.push_back(nb::cast<Text>(word).bytes());
        SetHelperCommand(std::move(words));
      },
      nb::arg("command"), nb::sig("def set_helper_command(command: list[str]) -> None"),
      "The program and arguments that stores of this process start helpers with.");
  nb::class_<PyStoredReader>(module, "StoredReader",
                             "Reads stored bytes as a loader does: same stores, retries, errors.")
      .def(
          "__init__",
          [](PyStoredReader* self, const PyIndex& index,
             const std::tuple<Text, Text, Text>& remedies, int threads,
             std::uint64_t decoded_bytes) {
            new (self) PyStoredReader(index, ToRemedies(remedies), threads, decoded_bytes);
          },
          nb::arg("index"), nb::arg("remedies"), nb::arg("threads") = 0,
          nb::arg("decoded_bytes") = 0,
          "`threads`: number of reads that run at once; 0: the number of a loader. "
          "`decoded_bytes`: memory for files and row groups that are decoded as a whole; 0: as "
          "much as is useful.")
      .def("read_into", &PyStoredReader::ReadInto, nb::arg("objects"), nb::arg("offsets"),
           nb::arg("sizes"), nb::arg("target"),
           nb::sig("def read_into(self, objects: NDArray[numpy.uint64], "
                   "offsets: NDArray[numpy.uint64], sizes: NDArray[numpy.uint64], "
                   "target: bytearray | memoryview) -> None"),
           "Fills all of `target` with the ranges, one after the other. Ctrl-C ends it.")
      .def("check", &PyStoredReader::Check, nb::arg("object"),
           "Raises unless the object is there, and as it was indexed.")
      .def("check_open", &PyStoredReader::CheckOpen,
           "Raises if a file that it has open has changed since it was indexed, or had when it was "
           "closed.")
      .def("close", &PyStoredReader::Close);
}

}  // namespace headrace::bindings
