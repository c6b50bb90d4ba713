#include "predicting/own_policy.h"

#include <nanobind/ndarray.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/format/errors.h"
#include "module.h"
#include "sim/published/streams.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

using From = SampleFetch::From;

void CheckBelow(std::string_view name, std::uint64_t value, std::uint64_t limit) {
  if (value < limit) return;
  ThrowStatus(InvalidArgument("{}: got {}, must be below {}", name, value, limit));
}

// The rates of a run's cluster, for Python.
class PolicyRates {
 public:
  explicit PolicyRates(Cluster cluster) : cluster_(std::move(cluster)) {}

  [[nodiscard]] double FromStorage(std::uint32_t readers) const {
    CheckReaders(readers);
    return cluster_.FromStorage(readers);
  }
  [[nodiscard]] double StorageWait(double bytes, std::uint32_t readers) const {
    CheckReaders(readers);
    return cluster_.StorageWait(bytes, readers);
  }
  [[nodiscard]] double FromTier(std::size_t tier) const {
    CheckBelow("tier", tier, cluster_.tiers.size());
    return cluster_.FromTier(tier);
  }
  [[nodiscard]] double FromPeer(std::size_t tier) const {
    CheckBelow("tier", tier, cluster_.tiers.size());
    return cluster_.FromPeer(tier);
  }
  [[nodiscard]] double ToStaging() const { return cluster_.ToStaging(); }
  [[nodiscard]] double Staged(double fetch) const { return cluster_.Staged(fetch); }

 private:
  static void CheckReaders(std::uint32_t readers) {
    if (readers == 0) ThrowStatus(InvalidArgument("readers: got 0, must be at least 1"));
  }

  const Cluster cluster_;
};

// The StorageReaders of a run, for Python, which may keep it for longer.
class PolicyReaders {
 public:
  explicit PolicyReaders(std::uint32_t nodes) : nodes_(nodes) {}

  // Null: the run has ended.
  void Set(StorageReaders* readers) { readers_ = readers; }

  [[nodiscard]] std::uint32_t At(std::uint32_t node, double seconds) const {
    return Readers(node).At(node, seconds);
  }
  void Reads(std::uint32_t node, double until) { Readers(node).Reads(node, until); }

 private:
  [[nodiscard]] StorageReaders& Readers(std::uint32_t node) const {
    if (readers_ == nullptr) {
      ThrowStatus(FailedPrecondition("readers: the run has ended; use them in fill_tiers() only"));
    }
    CheckBelow("readers: node", node, nodes_);
    return *readers_;
  }

  const std::uint32_t nodes_;
  StorageReaders* readers_ = nullptr;
};

class OwnPolicy final : public PublishedPolicy {
 public:
  OwnPolicy(const PolicyRequest& request, nb::object prepare,
            std::optional<nb::python_error>& raised)
      : PublishedPolicy(request), prepare_(std::move(prepare)), raised_(raised) {
    for (std::size_t from = 0; from < names_.size(); ++from) {
      names_[from] = nb::steal(PyUnicode_InternFromString(kFromNames[from]));
    }
  }
  OwnPolicy(const OwnPolicy&) = delete;
  OwnPolicy& operator=(const OwnPolicy&) = delete;
  ~OwnPolicy() override {
    if (readers_of_python_ != nullptr) readers_of_python_->Set(nullptr);
  }

  Result<Preload> Begin(Streams& streams) override {
    try {
      return Prepare(streams);
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
      return Preload();
    }
  }

  [[nodiscard]] bool reads_ahead() const override { return reads_ahead_; }

  SampleFetch FetchOf(std::uint32_t node, std::uint64_t place, std::uint32_t sample,
                      double begin) override {
    constexpr SampleFetch kAfterError = {.from = From::kStorage, .readers = 1};
    if (raised_) return kAfterError;
    try {
      const nb::object given = fetch_of_(node, place, sample, begin);
      if (const std::optional<SampleFetch> fetch = ToFetch(given)) return *fetch;
      refuse_fetch_(node, sample, given);
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    }
    return kAfterError;
  }

  void OnStaged(std::uint32_t node, std::uint32_t sample, double end) override {
    if (raised_ || on_staged_.is_none()) return;
    try {
      on_staged_(node, sample, end);
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    }
  }

  double FillTiers(std::uint32_t node, double seconds, StorageReaders& readers) override {
    if (raised_ || fill_tiers_.is_none()) return 0;
    try {
      readers_of_python_->Set(&readers);
      const nb::object given = fill_tiers_(node, seconds, readers_);
      readers_of_python_->Set(nullptr);
      const double bytes = PyFloat_AsDouble(given.ptr());
      if (PyErr_Occurred() == nullptr && bytes >= 0 && std::isfinite(bytes)) return bytes;
      PyErr_Clear();
      refuse_fill_(node, given);
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
    }
    return 0;
  }

 private:
  Preload Prepare(Streams& streams) {
    nb::list of_nodes;
    for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
      const std::span<const std::uint32_t> stream = streams.Of(node);
      of_nodes.append(ToArray(std::vector<std::uint32_t>(stream.begin(), stream.end())));
    }
    readers_ = nb::cast(PolicyReaders(cluster().nodes));
    readers_of_python_ = nb::inst_ptr<PolicyReaders>(readers_);
    const nb::object prepared =
        prepare_(of_nodes, streams.steps_per_epoch(), nb::cast(PolicyRates(cluster())));
    reads_ahead_ = nb::cast<bool>(prepared.attr("reads_ahead"));
    fetch_of_ = prepared.attr("fetch_of");
    on_staged_ = prepared.attr("on_staged");
    fill_tiers_ = prepared.attr("fill_tiers");
    refuse_fetch_ = prepared.attr("refuse_fetch");
    refuse_fill_ = prepared.attr("refuse_fill");
    const nb::object start = prepared.attr("begin")();
    const nb::object replaced = start.attr("streams");
    if (!replaced.is_none()) {
      for (std::uint32_t node = 0; node < cluster().nodes; ++node) {
        const auto samples = nb::cast<InArray<std::uint32_t>>(replaced[node]);
        streams.Replace(node, {samples.data(), samples.data() + samples.size()});
      }
    }
    return {.seconds = nb::cast<double>(start.attr("seconds")),
            .storage_bytes = nb::cast<double>(start.attr("storage_bytes")),
            .peer_bytes = nb::cast<double>(start.attr("peer_bytes"))};
  }

  // Of a name of kFromNames, or of a tuple of a name and a number. std::nullopt: it is neither.
  [[nodiscard]] std::optional<SampleFetch> ToFetch(const nb::object& given) const {
    const bool has_number = PyTuple_Check(given.ptr()) && PyTuple_Size(given.ptr()) == 2;
    const std::optional<From> from =
        FromOf(has_number ? nb::handle(PyTuple_GetItem(given.ptr(), 0)) : nb::handle(given));
    if (!from) return std::nullopt;
    const bool is_tier = *from == From::kTier || *from == From::kPeer;
    if (!has_number) return is_tier ? std::nullopt : std::optional(SampleFetch{.from = *from});
    PyObject* const item = PyTuple_GetItem(given.ptr(), 1);
    const Py_ssize_t number = PyNumber_AsSsize_t(item, PyExc_OverflowError);
    const bool is_wrong = PyErr_Occurred() != nullptr;
    PyErr_Clear();
    if (is_wrong || number < 0) return std::nullopt;
    const auto count = static_cast<std::size_t>(number);
    if (is_tier && count < cluster().tiers.size()) return SampleFetch{.from = *from, .tier = count};
    if (*from == From::kStorage && 0 < count && count <= cluster().nodes) {
      return SampleFetch{.from = *from, .readers = static_cast<std::uint32_t>(count)};
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<From> FromOf(nb::handle name) const {
    for (std::size_t from = 0; from < names_.size(); ++from) {
      if (name.is(names_[from])) return static_cast<From>(from);  // As a literal is.
    }
    if (!PyUnicode_Check(name.ptr())) return std::nullopt;
    for (std::size_t from = 0; from < names_.size(); ++from) {
      if (PyUnicode_Compare(name.ptr(), names_[from].ptr()) == 0) return static_cast<From>(from);
    }
    return std::nullopt;
  }

  const nb::object prepare_;
  std::optional<nb::python_error>& raised_;
  std::array<nb::object, SampleFetch::kKinds> names_;
  nb::object readers_;                          // a PolicyReaders
  PolicyReaders* readers_of_python_ = nullptr;  // the same
  bool reads_ahead_ = true;
  nb::object fetch_of_, on_staged_, fill_tiers_, refuse_fetch_, refuse_fill_;
};

}  // namespace

std::unique_ptr<PublishedPolicy> MakeOwnPolicy(const PolicyRequest& request,
                                               const nb::object& prepare,
                                               std::optional<nb::python_error>& raised) {
  return std::make_unique<OwnPolicy>(request, prepare, raised);
}

void BindOwnPolicy(nb::module_& module) {
  nb::class_<PolicyRates>(module, "PolicyRates", "Seconds a byte on a simulated cluster.")
      .def("from_storage", &PolicyRates::FromStorage, nb::arg("readers"),
           "Of one read. `readers`: the nodes that read storage then.")
      .def("storage_wait", &PolicyRates::StorageWait, nb::arg("bytes"), nb::arg("readers"),
           "Seconds by which storage's latency makes a read of so many bytes longer.")
      .def("from_tier", &PolicyRates::FromTier, nb::arg("tier"))
      .def("from_peer", &PolicyRates::FromPeer, nb::arg("tier"))
      .def("to_staging", &PolicyRates::ToStaging, "Preprocessing and writing, by one thread.")
      .def("staged", &PolicyRates::Staged, nb::arg("fetch"),
           "Through all threads of staging, of reads that take one of them `fetch`.");
  nb::class_<PolicyReaders>(module, "PolicyReaders", "Which nodes read storage at a time.")
      .def("at", &PolicyReaders::At, nb::arg("node"), nb::arg("seconds"),
           "Nodes that read then, `node` included.")
      .def("reads", &PolicyReaders::Reads, nb::arg("node"), nb::arg("until"),
           "The node reads until then.");
}

}  // namespace headrace::bindings
