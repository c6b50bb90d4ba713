// What `headrace profile` measures with.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/format/errors.h"
#include "base/mutex.h"
#include "base/units.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "index.h"
#include "loader/machine/machine.h"
#include "module.h"
#include "profile/folder_probe.h"
#include "profile/memory_probe.h"
#include "profile/slice.h"
#include "profile/storage_probe.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

constexpr double kSecondsMax = 3600;

std::int64_t ToNanos(const char* what, double seconds) {
  if (!(seconds > 0) || seconds > kSecondsMax) {
    ThrowStatus(InvalidArgument("{}: got {:f}, must be above 0 and at most 3600", what, seconds));
  }
  return static_cast<std::int64_t>(std::ceil(seconds * kNsPerSecond));
}

// Runs `measure` without the GIL; Ctrl-C ends it, and is raised here.
template <typename Measure>
auto Measured(double seconds, double seconds_max, const Measure& measure) {
  std::optional<nb::python_error> raised;  // dies under the GIL: declared outside its release
  SliceLimits limits{.duration_ns = ToNanos("seconds", seconds),
                     .duration_max_ns = ToNanos("seconds_max", seconds_max),
                     .keep_going = [&raised] {
                       const GilAcquire acquire;
                       if (PyErr_CheckSignals() == 0) return true;
                       raised.emplace();
                       return false;
                     }};
  auto result = [&] {
    const GilRelease released;
    return measure(limits);
  }();
  if (raised) throw nb::python_error(std::move(*raised));
  return ValueOrThrow(std::move(result));
}

class PyStorageProbe {
 public:
  explicit PyStorageProbe(const PyIndex& index) : index_(index.index) {
    auto made = [&] {
      const GilRelease released;
      return StorageProbe::Open(index_);
    }();
    probe_ = ValueOrThrow(std::move(made));
  }

  // One call at a time, and none of them under the GIL.
  StorageSlice Read(std::uint64_t read_bytes, int in_flight, double seconds, double seconds_max) {
    return Measured(seconds, seconds_max, [&](const SliceLimits& limits) {
      MutexLock lock(mutex_);
      return read_bytes == 0
                 ? probe_->ReadSamples(in_flight, limits)
                 : probe_->ReadRanges({.bytes = read_bytes, .users = in_flight}, limits);
    });
  }

  std::unique_ptr<DecodeProbe> MakeDecode(const DecodeProbeOptions& options) {
    return Measured(1, 1, [&](const SliceLimits& limits) {
      MutexLock lock(mutex_);
      return DecodeProbe::Make(*index_, *probe_, options, limits.keep_going);
    });
  }

  [[nodiscard]] const StorageProbe& probe() const { return *probe_; }

 private:
  const std::shared_ptr<const Index> index_;
  Mutex mutex_;
  std::unique_ptr<StorageProbe> probe_;
};

void BindSlices(nb::module_& module) {
  nb::class_<Slice>(module, "Slice", "One measurement.")
      .def_ro("rate", &Slice::rate, "bytes a second")
      .def_ro("operations_rate", &Slice::operations_rate, "reads, writes or samples a second")
      .def_ro("operations", &Slice::operations)
      .def_ro("bytes", &Slice::bytes);
  nb::class_<StorageSlice>(module, "StorageSlice", "One measurement of storage.")
      .def_ro("slice", &StorageSlice::slice)
      .def_ro("read_bytes", &StorageSlice::read_bytes, "of all reads, uncounted ones too")
      .def_ro("device_bytes", &StorageSlice::device_bytes,
              "what devices gave this process for them; -1: unknown");
}

}  // namespace

void BindProfile(nb::module_& module) {
  BindSlices(module);
  nb::class_<PyStorageProbe>(module, "StorageProbe",
                             "Reads a dataset's files past the page cache, as a loader would.")
      .def(nb::init<const PyIndex&>(), nb::arg("index"))
      .def("read", &PyStorageProbe::Read, nb::arg("read_bytes"), nb::arg("in_flight"),
           nb::arg("seconds"), nb::arg("seconds_max"),
           "Ranges of `read_bytes`; 0: whole samples, of 4 MiB at most.")
      .def_prop_ro("reads_ranges",
                   [](const PyStorageProbe& self) { return self.probe().reads_ranges(); })
      .def_prop_ro("object_bytes_max",
                   [](const PyStorageProbe& self) { return self.probe().object_bytes_max(); })
      .def_prop_ro("store", [](const PyStorageProbe& self) { return self.probe().stats().name; })
      .def_prop_ro("note", [](const PyStorageProbe& self) { return self.probe().stats().note; })
      .def_prop_ro(
          "direct_bytes",
          [](const PyStorageProbe& self) { return self.probe().stats().bytes_direct; },
          "read past the page cache so far");
  nb::class_<DecodeProbe>(module, "DecodeProbe", "Decodes some samples, from memory.")
      .def(nb::new_([](PyStorageProbe& storage, const std::optional<ImageTransform>& image) {
             return storage.MakeDecode({.image = image});
           }),
           nb::arg("storage"), nb::arg("image").none())
      .def(
          "run",
          [](DecodeProbe& self, int threads, double seconds, double seconds_max) {
            return Measured(seconds, seconds_max,
                            [&](const SliceLimits& limits) { return self.Run(threads, limits); });
          },
          nb::arg("threads"), nb::arg("seconds"), nb::arg("seconds_max"))
      .def_prop_ro("is_copy", &DecodeProbe::is_copy)
      .def_prop_ro("sample_count", &DecodeProbe::sample_count)
      .def_prop_ro("mean_bytes", &DecodeProbe::mean_bytes, "stored, of a sample");
  nb::class_<FolderProbe>(module, "FolderProbe", "Reads and writes a nameless file in a folder.")
      .def(nb::new_([](const Text& text, std::uint64_t bytes, double seconds_max) {
             const std::string folder = text.bytes();
             return Measured(1, seconds_max, [&](const SliceLimits& limits) {
               return FolderProbe::Make(folder, bytes, limits);
             });
           }),
           nb::arg("folder"), nb::arg("bytes"), nb::arg("seconds_max"))
      .def(
          "read",
          [](FolderProbe& self, std::uint64_t bytes, int threads, double seconds,
             double seconds_max) {
            return Measured(seconds, seconds_max, [&](const SliceLimits& limits) {
              return self.Read({.bytes = bytes, .users = threads}, limits);
            });
          },
          nb::arg("bytes"), nb::arg("threads"), nb::arg("seconds"), nb::arg("seconds_max"))
      .def(
          "write",
          [](FolderProbe& self, std::uint64_t bytes, int threads, double seconds,
             double seconds_max) {
            return Measured(seconds, seconds_max, [&](const SliceLimits& limits) {
              return self.Write({.bytes = bytes, .users = threads}, limits);
            });
          },
          nb::arg("bytes"), nb::arg("threads"), nb::arg("seconds"), nb::arg("seconds_max"))
      .def_prop_ro("direct", &FolderProbe::direct, "past the page cache")
      .def_prop_ro("bytes", &FolderProbe::bytes, "of its file");
  module.def(
      "measure_copy",
      [](int threads, double seconds, double seconds_max) {
        return Measured(seconds, seconds_max,
                        [&](const SliceLimits& limits) { return MeasureCopy(threads, limits); });
      },
      nb::arg("threads"), nb::arg("seconds"), nb::arg("seconds_max"),
      "Copies memory larger than the caches.");
  module.def("usable_cores", &UsableCores, "Processors that this process may use.");
}

}  // namespace headrace::bindings
