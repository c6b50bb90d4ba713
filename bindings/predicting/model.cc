// MachineModel: what a machine's measurements say about reads, sources and epochs.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/format/errors.h"
#include "convert/keywords.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "headrace/machine_model.h"
#include "model/epoch_prediction.h"
#include "module.h"
#include "predicting/plain_curve.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

// As plain Python: [(users, rate), ...], [(bytes, points), ...], (read, write, threads),
// (rate, asked); empty lists have no limit.
using PlainRates = std::vector<std::pair<std::uint64_t, PlainPoints>>;
using PlainTier = std::tuple<PlainRates, PlainRates, double>;
using PlainLink = std::pair<PlainRates, double>;
using PlainReads = std::vector<std::pair<double, double>>;
using PlainTierReads = std::vector<std::pair<PlainReads, PlainReads>>;
using PlainSource = std::pair<Text, std::size_t>;

SizedRates ToRates(const PlainRates& plain) {
  if (plain.empty()) return {};
  std::vector<SizedRates::Size> sizes;
  sizes.reserve(plain.size());
  for (const auto& [bytes, points] : plain) {
    sizes.push_back({.bytes = bytes, .rate = ToCurve(points)});
  }
  return ValueOrThrow(SizedRates::Make(std::move(sizes)));
}

TierModel ToTier(const PlainTier& plain) {
  const auto& [read, write, threads] = plain;
  return {.read = ToRates(read), .write = ToRates(write), .threads = threads};
}

PlainPoints ToPlain(const Curve& curve) {
  PlainPoints plain;
  for (const auto& [users, rate] : curve.points()) plain.emplace_back(users, rate);
  return plain;
}

PlainRates ToPlain(const SizedRates& rates) {
  PlainRates plain;
  for (const auto& [bytes, curve] : rates.sizes()) plain.emplace_back(bytes, ToPlain(curve));
  return plain;
}

PlainTier ToPlain(const TierModel& tier) {
  return {ToPlain(tier.read), ToPlain(tier.write), tier.threads};
}

MachineModel ToModel(const nb::kwargs& given) {
  Keywords keywords(given);
  MachineModel model;
  model.storage.rate = ToRates(keywords.Take("storage", PlainRates()));
  model.storage.rate_max = keywords.Take("storage_rate_max", kUnlimited);
  model.storage.shared = keywords.Take("storage_shared", model.storage.shared);
  model.readers = keywords.Take("readers", model.readers);
  for (const PlainTier& tier : keywords.Take("tiers", std::vector<PlainTier>())) {
    model.tiers.push_back(ToTier(tier));
  }
  model.staging = ToTier(keywords.Take("staging", PlainTier({}, {}, 1)));
  if (const auto link = keywords.Take("link", std::optional<PlainLink>())) {
    model.link = LinkModel{.rate = ToRates(link->first), .asked = link->second};
  }
  model.decode = ToCurve(keywords.Take("decode", PlainPoints()));
  model.copy = ToCurve(keywords.Take("copy", PlainPoints()));
  model.preprocess_rate = keywords.Take("preprocess_rate", kUnlimited);
  keywords.Finish();
  ThrowIfError(CheckModel(model));
  return model;
}

nb::dict ValuesOf(const MachineModel& model) {
  nb::dict dict;
  dict["storage"] = ToPlain(model.storage.rate);
  dict["storage_rate_max"] = model.storage.rate_max;
  dict["storage_shared"] = model.storage.shared;
  dict["readers"] = model.readers;
  std::vector<PlainTier> tiers;
  tiers.reserve(model.tiers.size());
  for (const TierModel& tier : model.tiers) tiers.push_back(ToPlain(tier));
  dict["tiers"] = tiers;
  dict["staging"] = ToPlain(model.staging);
  std::optional<PlainLink> link;
  if (model.link.has_value()) link.emplace(ToPlain(model.link->rate), model.link->asked);
  dict["link"] = link;
  dict["decode"] = ToPlain(model.decode);
  dict["copy"] = ToPlain(model.copy);
  dict["preprocess_rate"] = model.preprocess_rate;
  return dict;
}

std::vector<ReadCount> ToReads(const PlainReads& plain) {
  std::vector<ReadCount> reads;
  reads.reserve(plain.size());
  for (const auto& [bytes, count] : plain) reads.push_back({.read_bytes = bytes, .reads = count});
  return reads;
}

nb::dict Predict(const MachineModel& model, const nb::kwargs& given) {
  Keywords keywords(given);
  EpochWork work;
  work.samples = keywords.Take("samples", work.samples);
  work.storage = ToReads(keywords.Take("storage", PlainReads()));
  for (const auto& [reads, writes] : keywords.Take("tiers", PlainTierReads())) {
    work.tiers.push_back({.reads = ToReads(reads), .writes = ToReads(writes)});
  }
  work.peers = ToReads(keywords.Take("peers", PlainReads()));
  work.decode_bytes = keywords.Take("decode_bytes", work.decode_bytes);
  work.copy_bytes = keywords.Take("copy_bytes", work.copy_bytes);
  work.demand = keywords.Take("demand", work.demand);
  work.threads = keywords.Take("threads", work.threads);
  work.reads_in_flight = keywords.Take("reads_in_flight", work.reads_in_flight);
  work.storage_sharers = keywords.Take("storage_sharers", work.storage_sharers);
  keywords.Finish();
  const EpochPrediction prediction = ValueOrThrow(PredictEpoch(model, work));
  nb::dict needs;
  for (const ResourceSeconds& each : prediction.resources) {
    needs[ResourceName(each).c_str()] = each.seconds;
  }
  nb::dict dict;
  dict["seconds"] = prediction.seconds;
  dict["bound"] = ResourceName(prediction.bound);
  dict["needs"] = needs;
  return dict;
}

constexpr const char* kSourceNames[] = {"tier", "peer", "storage"};  // by Source::Kind

Source ToSource(const PlainSource& plain) {
  const std::string name = plain.first.bytes();
  for (std::size_t kind = 0; kind < std::size(kSourceNames); ++kind) {
    if (name == kSourceNames[kind]) {
      return {.kind = static_cast<Source::Kind>(kind), .tier = plain.second};
    }
  }
  ThrowStatus({StatusCode::kInvalidArgument,
               "source: got '" + name + "', must be 'tier', 'peer' or 'storage'"});
}

std::vector<std::tuple<std::string, std::size_t, double>> Rank(
    const MachineModel& model, double bytes, const std::vector<PlainSource>& candidates,
    double nodes) {
  if (!(nodes >= 1)) {
    ThrowStatus(InvalidArgument("ranking sources: nodes: got {:f}, must be at least 1", nodes));
  }
  std::vector<Source> sources;
  sources.reserve(candidates.size());
  for (const PlainSource& each : candidates) sources.push_back(ToSource(each));
  std::vector<std::tuple<std::string, std::size_t, double>> ranked;
  for (const RankedSource& each : RankSources(model, bytes, sources, nodes)) {
    ranked.emplace_back(kSourceNames[static_cast<std::size_t>(each.source.kind)], each.source.tier,
                        each.seconds);
  }
  return ranked;
}

// A whole stream at once: `which` says the position in `sources` of every sample.
nb::dict PredictStream(const MachineModel& model, const InArray<double>& bytes,
                       const InArray<std::uint32_t>& which, const std::vector<PlainSource>& plain,
                       double compute_rate) {
  std::vector<Source> sources;
  sources.reserve(plain.size());
  for (const PlainSource& each : plain) sources.push_back(ToSource(each));
  if (!(compute_rate > 0) || bytes.size() != which.size()) {
    ThrowStatus(InvalidArgument(
        "predicting a stream: compute_rate must be above 0, bytes and which as long; got {:f}, {} "
        "and {}",
        compute_rate, bytes.size(), which.size()));
  }
  for (std::size_t i = 0; i < which.size(); ++i) {
    if (which.data()[i] < sources.size()) continue;
    ThrowStatus(OutOfRange("predicting a stream: sample {} is from source {} of {}", i,
                           which.data()[i], sources.size()));
  }
  StreamClock clock(model, compute_rate);
  {
    const GilRelease released;
    for (std::size_t i = 0; i < which.size(); ++i) {
      clock.Add(bytes.data()[i], sources[which.data()[i]]);
    }
  }
  nb::dict dict;
  dict["seconds"] = clock.now();
  dict["compute_seconds"] = clock.compute_seconds();
  dict["stall_seconds"] = clock.stall_seconds();
  nb::dict fetch;
  for (std::size_t kind = 0; kind < std::size(kSourceNames); ++kind) {
    fetch[kSourceNames[kind]] = clock.fetch_seconds(static_cast<Source::Kind>(kind));
  }
  dict["fetch_seconds"] = fetch;
  return dict;
}

}  // namespace

void BindModel(nb::module_& module) {
  nb::class_<MachineModel>(
      module, "MachineModel",
      "What reads, decoding and epochs take on a machine: headrace docs model.")
      .def(
          "__init__",
          [](MachineModel* self, const nb::kwargs& given) {
            new (self) MachineModel(ToModel(given));
          },
          nb::arg("kwargs"),
          nb::sig("def __init__(self, *, "
                  "storage: Sequence[tuple[int, Sequence[tuple[float, float]]]] = (), "
                  "storage_rate_max: float = ..., storage_shared: bool = True, readers: float = 1, "
                  "tiers: Sequence[tuple[Any, Any, float]] = (), "
                  "staging: tuple[Any, Any, float] = ..., "
                  "link: tuple[Any, float] | None = None, "
                  "decode: Sequence[tuple[float, float]] = (), "
                  "copy: Sequence[tuple[float, float]] = (), preprocess_rate: float = ...)"
                  " -> None"))
      .def_prop_ro("values", &ValuesOf, nb::sig("def values(self) -> dict[str, Any]"),
                   "The arguments that give this model.")
      .def(
          "storage_rate",
          [](const MachineModel& self, double read_bytes, double reads_in_flight) {
            if (!(read_bytes > 0) || !(reads_in_flight > 0)) {
              ThrowStatus({StatusCode::kInvalidArgument,
                           "storage rate: bytes and reads in flight must be above 0"});
            }
            return self.storage.rate.Rate(read_bytes, reads_in_flight);
          },
          nb::arg("read_bytes"), nb::arg("reads_in_flight"), "Bytes a second.")
      .def("predict_epoch", &Predict, nb::arg("kwargs"),
           nb::sig(
               "def predict_epoch(self, *, samples: float = 0, "
               "storage: Sequence[tuple[float, float]] = (), "
               "tiers: Sequence[tuple[Sequence[tuple[float, float]], "
               "Sequence[tuple[float, float]]]] = (), peers: Sequence[tuple[float, float]] = (), "
               "decode_bytes: float = 0, copy_bytes: float = 0, demand: float = ..., "
               "threads: float = 1, reads_in_flight: float = 1, storage_sharers: float = 1)"
               " -> dict[str, Any]"),
           "seconds, bound, and what each resource needs alone")
      .def("predict_stream", &PredictStream, nb::arg("bytes"), nb::arg("which"), nb::arg("sources"),
           nb::arg("compute_rate"),
           nb::sig("def predict_stream(self, bytes: NDArray[numpy.float64], "
                   "which: NDArray[numpy.uint32], sources: Sequence[tuple[str, int]], "
                   "compute_rate: float) -> dict[str, Any]"),
           "NoPFS's recurrence over one worker's stream")
      .def("rank_sources", &Rank, nb::arg("bytes"), nb::arg("candidates"), nb::arg("nodes") = 1.0,
           "(kind, tier, seconds), fastest first; kinds are tier, peer, storage");
}

}  // namespace headrace::bindings
