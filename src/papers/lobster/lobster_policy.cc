#include "papers/lobster/lobster_policy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "model/lane_load.h"
#include "papers/lobster/decode_limit.h"

namespace headrace {
namespace {

// Time of a byte for each lane. A lane without a measurement gets the average of the others, so
// that a slow lane is not mistaken for a fast one; without any measurement, all are equal.
template <typename Shown>
std::vector<double> NsPerByte(std::span<const LaneWork> work, const Shown& shown) {
  double sum = 0;
  int known = 0;
  for (const LaneWork& lane : work) {
    if (shown(lane) <= 0) continue;
    sum += shown(lane);
    ++known;
  }
  std::vector<double> ns_per_byte;
  ns_per_byte.reserve(work.size());
  for (const LaneWork& lane : work) {
    const double of_lane = shown(lane);
    ns_per_byte.push_back(of_lane > 0 ? of_lane : known > 0 ? sum / known : 1);
  }
  return ns_per_byte;
}

// Seconds to decode each lane's step on one thread.
std::vector<double> DecodeNs(std::span<const LaneWork> work) {
  std::vector<double> ns =
      NsPerByte(work, [](const LaneWork& lane) { return lane.decode_ns_per_byte; });
  for (std::size_t i = 0; i < work.size(); ++i) ns[i] *= static_cast<double>(work[i].step_bytes);
  return ns;
}

// The limit of decode threads lasts from run to run.
LanePolicyFactory::MakePolicy OpenPolicies(const LanePolicyRequest& request,
                                           LobsterOptions::Search search) {
  const auto limit = std::make_shared<DecodeLimit>(DecodeLimit::Options{.budget = request.budget},
                                                   *request.decode_times);
  return [budget = request.budget, search, limit] {
    return std::make_unique<LobsterLanePolicy>(LobsterLanePolicy::Options{
        .budget = budget, .search = search, .decode_limit = limit.get()});
  };
}

LanePolicyFactory::MakePolicy OpenLobster(const LanePolicyRequest& request) {
  return OpenPolicies(request, LobsterOptions::Search::kMakespan);
}

LanePolicyFactory::MakePolicy OpenLobsterSearch(const LanePolicyRequest& request) {
  return OpenPolicies(request, LobsterOptions::Search::kBinarySearch);
}

// At least one of each for each lane.
void Give(const LaneShares& reads, const LaneShares& decodes, std::span<LaneShare> shares) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares[i] = {.reads = static_cast<std::uint32_t>(std::max(1, reads[i])),
                 .decodes = static_cast<std::uint32_t>(std::max(1, decodes[i]))};
  }
}

LanePolicyFactory::MakePolicy OpenProportional(const LanePolicyRequest& request) {
  return [budget = request.budget] { return std::make_unique<ProportionalLanePolicy>(budget); };
}

}  // namespace

const LanePolicyFactory& LobsterPolicyFactory() {
  static const LanePolicyFactory factory("lobster", &OpenLobster,
                                         LanePolicyFactory::IdleThreads::kRead);
  return factory;
}

const LanePolicyFactory& LobsterSearchPolicyFactory() {
  static const LanePolicyFactory factory("lobster_search", &OpenLobsterSearch,
                                         LanePolicyFactory::IdleThreads::kRead);
  return factory;
}

const LanePolicyFactory& ProportionalPolicyFactory() {
  static const LanePolicyFactory factory("proportional", &OpenProportional);
  return factory;
}

Status ProportionalLanePolicy::Split(Position /*at*/, std::span<const LaneWork> work,
                                     std::span<LaneShare> shares) {
  std::vector<std::uint64_t> samples;
  std::vector<std::uint64_t> bytes;
  for (const LaneWork& lane : work) {
    samples.push_back(lane.queued_samples);
    bytes.push_back(lane.step_bytes);
  }
  const LaneShares reads = Proportional(samples, static_cast<int>(budget_.reads));
  const LaneShares decodes = Proportional(bytes, static_cast<int>(budget_.decodes));
  Give(reads, decodes, shares);
  return Status();
}

LoadModel ModelOfReads(std::uint32_t reads) {
  constexpr double kRate = kNsPerSecond;  // "bytes" are nanoseconds of reading
  std::vector<Curve::Point> points = {{.users = 1, .rate = kRate}};
  if (reads > 1) points.push_back({.users = double(reads), .rate = kRate * reads});
  const Curve curve = Curve::Make(std::move(points)).value();
  LoadRates rates{.remote = curve, .storage = curve};
  rates.local.fill(curve);
  return {rates, static_cast<int>(reads)};
}

std::vector<LaneLoad> LoadsOf(std::span<const LaneWork> work,
                              BySource<std::uint64_t> LaneWork::*bytes,
                              std::span<const int> decodes) {
  std::vector<LaneLoad> loads(work.size());
  using Rates = BySource<double>;
  const auto times = [&](double Rates::*source) {
    return NsPerByte(work,
                     [source](const LaneWork& lane) { return lane.read_ns_per_byte.*source; });
  };
  const std::vector<double> tier = times(&Rates::tier);
  const std::vector<double> node = times(&Rates::node);
  const std::vector<double> storage = times(&Rates::storage);
  for (std::size_t i = 0; i < work.size(); ++i) {
    const BySource<std::uint64_t>& of = work[i].*bytes;
    loads[i].requests = work[i].queued_samples;
    loads[i].local_bytes[0] = static_cast<double>(of.tier) * tier[i];
    loads[i].remote_bytes = static_cast<double>(of.node) * node[i];
    loads[i].storage_bytes = static_cast<double>(of.storage) * storage[i];
  }
  if (decodes.empty()) return loads;
  const std::vector<double> decode_ns = DecodeNs(work);
  for (std::size_t i = 0; i < work.size(); ++i) {
    loads[i].preprocess_seconds = decode_ns[i] / kNsPerSecond / std::max(decodes[i], 1);
  }
  return loads;
}

double TrainSeconds(std::span<const LaneWork> work) {
  std::int64_t least_ns = 0;
  for (const LaneWork& lane : work) {
    if (lane.step_ns > 0 && (least_ns == 0 || lane.step_ns < least_ns)) least_ns = lane.step_ns;
  }
  return static_cast<double>(least_ns) / kNsPerSecond;
}

bool RatesKnown(std::span<const LaneWork> work) {
  const auto known = [&](std::uint64_t BySource<std::uint64_t>::*bytes,
                         double BySource<double>::*rate) {
    return std::ranges::all_of(
               work, [&](const LaneWork& lane) { return lane.queued_bytes.*bytes == 0; }) ||
           std::ranges::any_of(
               work, [&](const LaneWork& lane) { return lane.read_ns_per_byte.*rate > 0; });
  };
  using Bytes = BySource<std::uint64_t>;
  using Rates = BySource<double>;
  return known(&Bytes::tier, &Rates::tier) && known(&Bytes::node, &Rates::node) &&
         known(&Bytes::storage, &Rates::storage);
}

void FillShares(std::span<const LaneLoad> loads, const LoadModel& model, int budget,
                LaneShares& shares) {
  SpreadSpare(loads, model, budget, shares);
  const int spare = budget - std::accumulate(shares.begin(), shares.end(), 0);
  for (int i = 0; i < spare; ++i) ++shares[static_cast<std::size_t>(i) % shares.size()];
}

LobsterLanePolicy::LobsterLanePolicy(const Options& options)
    : options_(options),
      model_(ModelOfReads(std::max(options.budget.reads, 1U) + options.budget.decodes)) {}

Status LobsterLanePolicy::Split(Position /*at*/, std::span<const LaneWork> work,
                                std::span<LaneShare> shares) {
  SplitDecodes(work);
  SplitReads(work);
  Give(reads_, decodes_, shares);
  return Status();
}

// Shares change when the budget changes, or when that makes the slowest lane faster.
void LobsterLanePolicy::SplitDecodes(std::span<const LaneWork> work) {
  std::uint32_t threads = options_.budget.decodes;
  if (options_.decode_limit != nullptr) {
    threads = std::min(threads, options_.decode_limit->Threads(work));
    decode_threads_.store(threads, std::memory_order_relaxed);
  }
  const int budget = std::max(static_cast<int>(threads), static_cast<int>(work.size()));
  std::vector<std::uint64_t> ns;
  ns.reserve(work.size());
  for (const double each : DecodeNs(work)) ns.push_back(static_cast<std::uint64_t>(each));
  LaneShares wanted = Proportional(ns, budget);
  const auto slowest = [&](const LaneShares& shares) {
    double most = 0;
    for (std::size_t i = 0; i < ns.size(); ++i) {
      most = std::max(most, static_cast<double>(ns[i]) / shares[i]);
    }
    return most;
  };
  if (decodes_given_ == budget && decodes_.size() == wanted.size() &&
      slowest(wanted) > slowest(decodes_) * (1 - options_.gain_min)) {
    return;
  }
  decodes_ = std::move(wanted);
  decodes_given_ = budget;
}

void LobsterLanePolicy::SplitReads(std::span<const LaneWork> work) {
  const auto idle = static_cast<int>(options_.budget.decodes) - decodes_given_;
  const int budget = static_cast<int>(options_.budget.reads) + std::max(idle, 0);
  if (budget < static_cast<int>(work.size())) {  // Fewer reads than lanes: one each.
    reads_.assign(work.size(), 1);
    return;
  }
  if (!RatesKnown(work)) {
    std::vector<std::uint64_t> bytes;
    for (const LaneWork& lane : work) {
      const BySource<std::uint64_t>& of = lane.queued_bytes;
      bytes.push_back(of.tier + of.node + of.storage);
    }
    reads_ = Proportional(bytes, budget);
    return;
  }
  const std::vector<LaneLoad> loads = LoadsOf(work, &LaneWork::queued_bytes, decodes_);
  LobsterDecision decision = LobsterShares(
      loads, model_, budget,
      {.train_seconds = TrainSeconds(work), .theta = options_.theta, .search = options_.search});
  if (decision.straggler) stragglers_.fetch_add(1, std::memory_order_relaxed);
  Take(loads, budget, std::move(decision.shares));
}

// Changes the shares if others are better by enough, or if there are more or fewer to give. The
// paper's own are taken as they are.
void LobsterLanePolicy::Take(std::span<const LaneLoad> loads, int budget, LaneShares shares) {
  if (options_.search == LobsterOptions::Search::kMakespan) {
    FillShares(loads, model_, budget, shares);
    const int given = std::accumulate(reads_.begin(), reads_.end(), 0);
    if (given == budget && Makespan(loads, model_, shares) >
                               Makespan(loads, model_, reads_) * (1 - options_.gain_min)) {
      return;
    }
  }
  if (!reads_.empty() && reads_ != shares) corrections_.fetch_add(1, std::memory_order_relaxed);
  reads_ = std::move(shares);
}

LaneCounts LobsterLanePolicy::counts() const {
  return {.stragglers = stragglers_.load(std::memory_order_relaxed),
          .corrections = corrections_.load(std::memory_order_relaxed),
          .decodes = decode_threads_.load(std::memory_order_relaxed)};
}

}  // namespace headrace
