// QualityMeter: how well a sequence of samples is shuffled.

#include "plan/quality/quality.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/mutex.h"
#include "convert/keywords.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "module.h"
#include "order.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

nb::dict ByWindow(const std::map<std::uint64_t, double>& vif) {
  nb::dict dict;
  for (const auto& [window, value] : vif) dict[std::to_string(window).c_str()] = value;
  return dict;
}

nb::dict ToDict(const QualityReport& report) {
  nb::dict dict;
  dict["verdict"] = report.verdict;
  dict["why"] = report.why;
  dict["change"] = report.change;
  nb::list effects;
  for (const QualityEffect& effect : report.effects) {
    nb::dict each;
    each["name"] = effect.name;
    each["grade"] = GradeName(effect.grade);
    each["value"] = effect.value;
    each["good"] = effect.good;
    each["what"] = effect.what;
    each["change"] = effect.change;
    effects.append(each);
  }
  dict["effects"] = effects;
  dict["failed"] = nb::cast(report.failed);
  dict["epochs"] = report.epochs;
  dict["positions"] = report.positions;
  dict["missing"] = report.missing;
  dict["duplicated"] = report.duplicated;
  dict["unknown"] = report.unknown;
  dict["dropped"] = report.dropped;
  dict["padded"] = report.padded;
  dict["seen_share"] = report.seen_share;
  dict["expected_seen_share"] = report.expected_seen_share;
  dict["ids_xor"] = report.ids_xor;
  dict["ids_sum"] = report.ids_sum;
  dict["stored_shuffled"] = report.stored_shuffled;
  dict["groups"] = report.group_count;
  dict["equivalent_buffer"] = report.equivalent_buffer;
  dict["vif"] = ByWindow(report.vif);
  nb::list of_epochs;
  for (const auto& vif : report.vif_of_epochs) of_epochs.append(ByWindow(vif));
  dict["vif_of_epochs"] = of_epochs;
  dict["label_vif"] = ByWindow(report.label_vif);
  nb::list tests;
  for (const QualityTest& test : report.tests) {
    nb::dict each;
    each["id"] = test.id;
    each["name"] = test.name;
    each["value"] = test.value;
    each["expected"] = test.expected;
    each["low"] = test.low;
    each["high"] = test.high;
    each["z"] = test.z;
    each["within"] = test.within;
    tests.append(each);
  }
  dict["tests"] = tests;
  dict["more"] = nb::cast(report.more);
  return dict;
}

class PyMeter {
 public:
  PyMeter(const PyBlocks& blocks, const nb::kwargs& given) {
    QualityOptions options{.sample_count = blocks.blocks->sample_count(), .blocks = blocks.blocks};
    Keywords keywords(given);
    using Table = std::optional<InArray<std::uint32_t>>;
    options.batch = keywords.Take("batch", options.batch);
    options.labels = ToTable(keywords.Take<Table>("labels", {}));
    options.costs = ToTable(keywords.Take<Table>("costs", {}));
    options.stored_shuffled = keywords.Take("stored_shuffled", options.stored_shuffled);
    options.windows = keywords.Take("windows", options.windows);
    options.dropped = keywords.Take("dropped", options.dropped);
    options.padded = keywords.Take("padded", options.padded);
    options.partial = keywords.Take("partial", options.partial);
    options.alpha = keywords.Take("alpha", options.alpha);
    keywords.Finish();
    auto made = [&] {
      const GilRelease released;
      return QualityMeter::Make(std::move(options));
    }();
    std::unique_ptr<QualityMeter> meter = ValueOrThrow(std::move(made));
    MutexLock lock(mutex_);
    meter_ = std::move(meter);
  }

  void Add(const InArray<std::uint64_t>& ids) {
    const std::span<const std::uint64_t> all(ids.data(), ids.size());
    const GilRelease released;
    MutexLock lock(mutex_);
    meter_->Add(all);
  }

  void AddRequested(const InArray<std::uint64_t>& ids) {
    const std::span<const std::uint64_t> all(ids.data(), ids.size());
    const GilRelease released;
    MutexLock lock(mutex_);
    meter_->AddRequested(all);
  }

  void EndEpoch() {
    const GilRelease released;
    MutexLock lock(mutex_);
    meter_->EndEpoch();
  }

  nb::dict Report() {
    const QualityReport report = [&] {
      const GilRelease released;
      MutexLock lock(mutex_);
      return meter_->Report();
    }();
    return ToDict(report);
  }

 private:
  Mutex mutex_;
  std::unique_ptr<QualityMeter> meter_ HEADRACE_GUARDED_BY(mutex_);
};

}  // namespace

void BindQuality(nb::module_& module) {
  module.attr("good_label_inflation") = kGoodLabelInflation;
  nb::class_<PyMeter>(module, "QualityMeter", "Measures M0 to M11 over epochs of samples.")
      .def(nb::init<const PyBlocks&, const nb::kwargs&>(), nb::arg("blocks"), nb::arg("kwargs"),
           nb::sig("def __init__(self, blocks: Blocks, *, batch: int = 256, "
                   "labels: NDArray[numpy.uint32] | None = None, "
                   "costs: NDArray[numpy.uint32] | None = None, stored_shuffled: bool = False, "
                   "windows: Sequence[int] = (), dropped: int = 0, padded: int = 0, "
                   "partial: bool = False, alpha: float = 0.001) -> None"))
      .def("add", &PyMeter::Add, nb::arg("ids"))
      .def("add_requested", &PyMeter::AddRequested, nb::arg("ids"))
      .def("end_epoch", &PyMeter::EndEpoch)
      .def("report", &PyMeter::Report, nb::sig("def report(self) -> dict[str, Any]"));
}

}  // namespace headrace::bindings
