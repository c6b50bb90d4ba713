#include "papers/lobster/planned_threads.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "model/lane_shares.h"
#include "model/thread_split.h"
#include "papers/lobster/lobster_policy.h"

namespace headrace {
namespace {

// Bytes a second by the reads that each of `lanes` lanes has in flight, as one lane sees it.
Curve LaneCurve(const SizedRates& rates, double read_bytes, std::uint32_t lanes, int reads) {
  std::vector<Curve::Point> points;
  for (int users = 1; users <= reads; users *= 2) {
    const double rate = rates.Rate(read_bytes, double(users) * lanes) / lanes;
    if (rate == kUnlimited) return {};
    points.push_back({.users = double(users), .rate = rate});
  }
  Result<Curve> curve = Curve::Make(std::move(points));
  return curve.ok() ? std::move(curve).value() : Curve();
}

LoadModel LoadModelOf(const PlannedThreads::Options& options) {
  const std::uint32_t threads = options.budget.reads + options.budget.decodes;
  if (!options.model.has_value()) return ModelOfReads(threads);
  const MachineModel& model = *options.model;
  const int reads = static_cast<int>(threads);
  const auto curve = [&](const SizedRates& rates) {
    return LaneCurve(rates, options.read_bytes, options.lanes, reads);
  };
  LoadRates rates;
  rates.storage = curve(model.storage.rate);
  for (std::size_t tier = 0; tier < rates.local.size(); ++tier) {
    rates.local[tier] = tier < model.tiers.size() ? curve(model.tiers[tier].read) : rates.storage;
  }
  rates.remote = model.link.has_value() ? curve(model.link->rate) : rates.storage;
  return {rates, reads};
}

// A byte's curve, of the rate over threads that the model has.
std::optional<PreprocessCurve> CurveOfAByte(const std::optional<MachineModel>& model) {
  if (!model.has_value() || model->decode.points().empty()) return std::nullopt;
  std::vector<PreprocessCurve::Point> points;
  for (const Curve::Point& point : model->decode.points()) {
    points.push_back({.threads = point.users, .seconds = point.users / point.rate});
  }
  return PreprocessCurve(points);
}

}  // namespace

PlannedThreads::PlannedThreads(Options options)
    : options_(std::move(options)),
      load_(LoadModelOf(options_)),
      of_a_byte_(CurveOfAByte(options_.model)) {}

std::vector<LaneThreads> PlannedThreads::operator()(std::span<const LaneDemand> demand) const {
  std::vector<LaneLoad> loads;
  std::vector<std::uint64_t> bytes;
  for (const LaneDemand& lane : demand) {
    loads.push_back({.requests = lane.samples,
                     .local_bytes = lane.tier_bytes,
                     .remote_bytes = lane.peer_bytes,
                     .storage_bytes = lane.storage_bytes});
    bytes.push_back(static_cast<std::uint64_t>(lane.bytes()));
  }
  const int decode = DecodeThreads(demand, loads, bytes);
  const int reads = load_.threads_max() - decode;
  const LaneShares decodes = Proportional(bytes, decode);
  for (std::size_t i = 0; i < demand.size(); ++i) {
    loads[i].preprocess_seconds = SecondsOnOne(demand[i], decode) / std::max(1, decodes[i]);
  }
  LaneShares shares =
      LobsterShares(loads, load_, reads, {.train_seconds = options_.train_seconds}).shares;
  FillShares(loads, load_, reads, shares);
  std::vector<LaneThreads> threads;
  for (std::size_t i = 0; i < demand.size(); ++i) {
    threads.push_back({.loading = static_cast<std::uint32_t>(shares[i]),
                       .decode = static_cast<std::uint32_t>(decodes[i])});
  }
  return threads;
}

// Section 4.1. A thread decodes for one lane, so each lane has one where there are enough.
int PlannedThreads::DecodeThreads(std::span<const LaneDemand> demand,
                                  std::span<const LaneLoad> loads,
                                  std::span<const std::uint64_t> bytes) const {
  const int most = static_cast<int>(options_.budget.decodes);
  const int least = std::min(static_cast<int>(demand.size()), most);
  if (!options_.model.has_value() || least == most) return most;
  std::vector<std::uint64_t> samples;
  for (const LaneDemand& lane : demand) samples.push_back(lane.samples);
  const auto sum = [](std::span<const std::uint64_t> of) {
    return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
  };
  if (sum(bytes) == 0) return most;
  SplitRequest request{.lanes = loads,
                       .samples = samples,
                       .load = &load_,
                       .threads = load_.threads_max(),
                       .decode_min = least,
                       .decode_max = most,
                       .train_seconds = options_.train_seconds};
  const double mean = static_cast<double>(sum(bytes)) / static_cast<double>(sum(samples));
  request.preprocess = options_.preprocess.Find(options_.transform, mean);
  if (request.preprocess == nullptr) {
    if (!of_a_byte_.has_value()) return most;
    request.preprocess = &*of_a_byte_;
    request.samples = bytes;
  }
  return SplitLoadAndDecode(request).decode;
}

// To preprocess the lane's batch on one thread while so many run: as it was learned, or as the
// model says.
double PlannedThreads::SecondsOnOne(const LaneDemand& lane, int threads) const {
  if (!options_.model.has_value() || lane.samples == 0) return 0;
  const auto samples = static_cast<double>(lane.samples);
  const std::optional<double> learned =
      options_.preprocess.Seconds(options_.transform, lane.bytes() / samples, threads);
  if (learned.has_value()) return *learned * samples;
  const Curve& decode = options_.model->decode;
  return decode.points().empty() ? 0 : lane.bytes() / decode.RateEach(threads);
}

}  // namespace headrace
