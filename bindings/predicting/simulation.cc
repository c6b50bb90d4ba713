// Published policies on a modelled cluster.

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/clock.h"
#include "base/format/errors.h"
#include "convert/keywords.h"
#include "convert/order_parameters.h"
#include "convert/text.h"
#include "gil/gil.h"
#include "headrace/members.h"
#include "module.h"
#include "predicting/own_policy.h"
#include "predicting/plain_curve.h"
#include "sim/job/engine_job.h"
#include "sim/job/fast_job.h"
#include "sim/published/run.h"
#include "status.h"

namespace headrace::bindings {
namespace {

namespace nb = nanobind;

using PlainCache = std::tuple<double, std::uint32_t, double>;            // bytes, threads, rate
using PlainTierCache = std::tuple<double, std::uint32_t, double, bool>;  // ..., whether shared

Cluster ToCluster(Keywords& keywords) {
  Cluster cluster;
  cluster.nodes = keywords.Take("nodes", cluster.nodes);
  cluster.compute_rate = keywords.Take("compute_rate", cluster.compute_rate);
  cluster.sample_rate = keywords.Take("sample_rate", cluster.sample_rate);
  cluster.preprocess_rate = keywords.Take("preprocess_rate", cluster.preprocess_rate);
  cluster.allreduce_seconds = keywords.Take("allreduce_seconds", cluster.allreduce_seconds);
  cluster.allreduce_noise = keywords.Take("allreduce_noise", cluster.allreduce_noise);
  cluster.storage = ToCurve(keywords.Take("storage", PlainPoints()));
  cluster.storage_link_rate = keywords.Take("storage_link_rate", cluster.storage_link_rate);
  cluster.storage_latency_seconds =
      keywords.Take("storage_latency", cluster.storage_latency_seconds);
  cluster.reads_share = keywords.Take("reads_share", cluster.reads_share);
  cluster.network_rate = keywords.Take("network_rate", cluster.network_rate);
  const auto [bytes, threads, rate] =
      keywords.Take("staging", PlainCache(0, cluster.staging_threads, cluster.staging_rate));
  cluster.staging_bytes = bytes;
  cluster.staging_threads = threads;
  cluster.staging_rate = rate;
  for (const auto& [tier_bytes, tier_threads, tier_rate, is_shared] :
       keywords.Take("tiers", std::vector<PlainTierCache>())) {
    cluster.tiers.push_back(
        {.bytes = tier_bytes, .threads = tier_threads, .rate = tier_rate, .shared = is_shared});
  }
  return cluster;
}

constexpr std::int64_t kSignalNanos = 50'000'000;  // from one look at signals to the next

SimulatedJob ToJob(const InArray<double>& sizes, Keywords& keywords) {
  SimulatedJob job;
  job.cluster = ToCluster(keywords);
  job.batch_size = keywords.Take("batch_size", job.batch_size);
  job.epochs = keywords.Take("epochs", job.epochs);
  job.seed = keywords.Take("seed", job.seed);
  job.sizes.assign(sizes.data(), sizes.data() + sizes.size());
  return job;
}

// Runs `simulate` without the GIL. It calls its argument often, and ends when that returns false:
// Ctrl-C came.
template <typename Simulate>
auto RunSimulation(const Simulate& simulate) {
  std::optional<nb::python_error> raised;  // dies under the GIL: declared outside its release
  const MonotonicClock clock;
  std::int64_t checked_ns = clock.NowNanos();
  const auto keep_going = [&raised, &clock, &checked_ns] {
    if (raised) return false;
    if (clock.NowNanos() - checked_ns < kSignalNanos) return true;
    checked_ns = clock.NowNanos();
    const GilAcquire acquire;
    if (SignalsPass()) return true;
    raised.emplace();
    return false;
  };
  auto run = WithoutGil([&] { return simulate(keep_going); });
  if (raised) throw nb::python_error(std::move(*raised));
  return ValueOrThrow(std::move(run));
}

nb::dict ToDict(SimulatedRun result) {
  nb::dict fetched;
  for (std::size_t from = 0; from < result.fetched.size(); ++from) {
    const FetchTotals& totals = result.fetched[from];
    nb::dict of_source;
    of_source["samples"] = totals.samples;
    of_source["bytes"] = totals.bytes;
    of_source["seconds"] = totals.seconds;
    fetched[kFromNames[from]] = of_source;
  }
  nb::dict dict;
  dict["seconds"] = result.seconds;
  dict["setup_seconds"] = result.setup_seconds;
  dict["compute_seconds"] = result.compute_seconds;
  dict["stall_seconds"] = result.stall_seconds;
  dict["barrier_seconds"] = result.barrier_seconds;
  dict["allreduce_seconds"] = result.allreduce_seconds;
  dict["samples_used"] = result.samples_used;
  dict["fetched"] = fetched;
  dict["filled_bytes"] = result.filled_bytes;
  dict["copied_bytes"] = result.copied_bytes;
  dict["epoch_seconds"] = ToArray(std::move(result.epoch_seconds));
  dict["step_seconds"] = ToArray(std::move(result.step_seconds));
  return dict;
}

nb::dict RunPolicy(const Text& policy, const InArray<double>& sizes, const nb::kwargs& given) {
  const PublishedPolicyRow* const row = FindPublishedPolicy(policy.bytes());
  if (row == nullptr) {
    std::string names;
    for (const PublishedPolicyRow& known : PublishedPolicies()) {
      names.append(names.empty() ? "" : ", ").append(known.name);
    }
    ThrowStatus(NotFound("simulating: there is no published policy '{}'; there are {}",
                         policy.bytes(), names));
  }
  Keywords keywords(given);
  const SimulatedJob job = ToJob(sizes, keywords);
  keywords.Finish();
  return ToDict(
      RunSimulation([&](const auto& keep_going) { return RunPublished(*row, job, keep_going); }));
}

// With the GIL: Python is asked for each sample.
nb::dict RunOwnPolicy(const nb::object& prepare, const InArray<double>& sizes,
                      const nb::kwargs& given) {
  Keywords keywords(given);
  const SimulatedJob job = ToJob(sizes, keywords);
  keywords.Finish();
  std::optional<nb::python_error> raised;
  const auto make = [&](const PolicyRequest& request) {
    return MakeOwnPolicy(request, prepare, raised);
  };
  const auto keep_going = [&raised] {
    if (!raised && !SignalsPass()) raised.emplace();
    return !raised;
  };
  Result<SimulatedRun> run = RunPublished("own", make, job, keep_going);
  if (raised) throw nb::python_error(std::move(*raised));
  return ToDict(ValueOrThrow(std::move(run)));
}

nb::dict RunOrder(const Text& order, const InArray<double>& sizes, const nb::kwargs& given) {
  Keywords keywords(given);
  const SimulatedJob job = ToJob(sizes, keywords);
  EngineJobOptions options{.order = order.bytes()};
  if (const auto placement = keywords.Take("placement", std::optional<Text>())) {
    options.placement = placement->bytes();
  }
  if (const auto schedule = keywords.Take("schedule", std::optional<Text>())) {
    options.schedule = schedule->bytes();
  }
  options.parameters = ToOrderParameters(keywords.Take("parameters", nb::dict()));
  options.ranks = keywords.Take("ranks", options.ranks);
  options.batches_max = keywords.Take("batches_max", options.batches_max);
  options.reads_in_flight = keywords.Take("reads_in_flight", options.reads_in_flight);
  options.reads_per_second = keywords.Take("reads_per_second", options.reads_per_second);
  options.files = keywords.Take("files", options.files);
  const bool fast = keywords.Take("fast", false);
  keywords.Finish();
  EngineJobResult result = RunSimulation([&](const auto& keep_going) {
    return fast ? RunFast(job, options, keep_going) : RunEngines(job, options, keep_going);
  });
  nb::dict dict = ToDict(std::move(result.run));
  dict["least_seconds"] = result.least_seconds;
  dict["first_read_seconds"] = result.first_read_seconds;
  dict["storage_reads"] = result.storage_reads;
  if (!fast) dict["ahead_samples"] = result.ahead_samples;
  nb::dict stalls;
  for (std::size_t cause = 0; cause < kStallCauses; ++cause) {
    stalls[ToName(kStallCauseNames[cause])] = static_cast<double>(result.stall_ns[cause]) * 1e-9;
  }
  dict["stalls"] = stalls;
  dict["spread_seconds"] = ToArray(std::move(result.spread_seconds));
  nb::list ranks;
  for (const RankStages& rank : result.ranks) {
    nb::dict stages;
    ForEachMember([&](std::string_view name, double seconds) { stages[ToName(name)] = seconds; },
                  rank);
    ranks.append(stages);
  }
  dict["ranks"] = ranks;
  return dict;
}

#define HEADRACE_SIMULATED_JOB                                                          \
  "nodes: int = 1, batch_size: int = 1, epochs: int = 1, seed: int = 0, "               \
  "compute_rate: float = ..., sample_rate: float = ..., preprocess_rate: float = ..., " \
  "allreduce_seconds: float = 0, allreduce_noise: float = 0, "                          \
  "storage: Sequence[tuple[float, float]] = (), storage_link_rate: float = ..., "       \
  "storage_latency: float = 0, "                                                        \
  "reads_share: bool = False, network_rate: float = ..., "                              \
  "staging: tuple[float, int, float] = ..., "                                           \
  "tiers: Sequence[tuple[float, int, float, bool]] = ()) -> dict[str, Any]"

}  // namespace

void BindSimulation(nb::module_& module) {
  std::vector<std::tuple<std::string, std::string, std::string, bool>> rows;
  for (const PublishedPolicyRow& row : PublishedPolicies()) {
    rows.emplace_back(row.name, row.title, row.paper, row.changes_order);
  }
  module.def(
      "published_policies", [rows] { return rows; },
      "(name, title, paper, whether it changes the order) of each.");
  module.def("run_published", &RunPolicy, nb::arg("policy"), nb::arg("sizes"), nb::arg("kwargs"),
             nb::sig("def run_published(policy: str, sizes: NDArray[numpy.float64], "
                     "*, " HEADRACE_SIMULATED_JOB),
             "A job by a published policy, sample by sample. Rates are bytes a second.");
  BindOwnPolicy(module);
  module.def("run_own_policy", &RunOwnPolicy, nb::arg("prepare"), nb::arg("sizes"),
             nb::arg("kwargs"),
             nb::sig("def run_own_policy(prepare: Callable[..., Any], "
                     "sizes: NDArray[numpy.float64], *, " HEADRACE_SIMULATED_JOB),
             "The same by a policy of Python's: headrace.simulation.own.");
  module.def(
      "run_order", &RunOrder, nb::arg("order"), nb::arg("sizes"), nb::arg("kwargs"),
      nb::sig("def run_order(order: str, sizes: NDArray[numpy.float64], *, "
              "parameters: dict[str, int | str] = ..., placement: str = ..., "
              "schedule: str = ..., fast: bool = False, ranks: int = 1, batches_max: int = 64, "
              "reads_in_flight: int = 0, "
              "reads_per_second: float = ..., files: bool = False, " HEADRACE_SIMULATED_JOB),
      "A job by an order of Headrace, its engines in virtual time; otherwise as "
      "run_published().");
}

}  // namespace headrace::bindings
