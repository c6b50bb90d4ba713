#include "model/lane_shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace headrace {
namespace {

__extension__ using Wide = unsigned __int128;

int Total(const LaneShares& shares) { return std::accumulate(shares.begin(), shares.end(), 0); }

void CheckBudget(std::size_t lanes, const LoadModel& model, int budget) {
  HEADRACE_CHECK(lanes > 0);
  HEADRACE_CHECK(budget >= 1 && static_cast<std::size_t>(budget) >= lanes);
  HEADRACE_CHECK(budget <= model.threads_max());
}

std::size_t Slowest(std::span<const double> seconds) {
  return static_cast<std::size_t>(std::max_element(seconds.begin(), seconds.end()) -
                                  seconds.begin());
}

// The fewest threads for each lane to take at most `seconds`; std::nullopt if `budget` is too
// small.
std::optional<LaneShares> SharesFor(std::span<const LaneLoad> lanes, const LoadModel& model,
                                    int budget, double seconds) {
  LaneShares shares;
  shares.reserve(lanes.size());
  int left = budget - static_cast<int>(lanes.size());  // each lane has one thread of its own
  for (const LaneLoad& lane : lanes) {
    const int threads = model.ThreadsFor(lane, seconds, left + 1);
    if (threads == 0) return std::nullopt;
    left -= threads - 1;
    shares.push_back(threads);
  }
  return shares;
}

// Algorithm 1 for one lane, with these corrections, by the lines of the paper:
//   2, 22  l_min is 1: zero threads never load anything, and equation 1 divides by their number.
//   3      i < |G|: there is no lane |G|.
//   4, 17  T_dif = T_train - (T_L + T_P): only with this sign, not that of equation 2, does line 13
//          raise l_min for a lane that is late.
//   5      A lane that is close enough from the start keeps its threads: L_opt was undefined.
//   10     IsConsistent is not defined, and the text stops when W is full. Here the search stops
//          when no number of threads is left between the bounds. Each iteration halves them, so W,
//          which was to end a search that does not end, is not needed.
//   13-16  L_th becomes L_new: otherwise every iteration tries the same number again. The bounds
//          exclude numbers already tried, so that both of their ends are tried, too.
//   18     Keeps the *smaller* absolute difference.
int AlgorithmOne(const LaneLoad& lane, const LoadModel& model, int threads_most, int start,
                 double train_seconds, double tolerance_seconds) {
  int threads = start;
  double difference = train_seconds - model.Seconds(lane, threads);
  int best = threads;
  double difference_least = std::abs(difference);
  int least = 1;
  int most = threads_most;
  while (std::abs(difference) >= tolerance_seconds) {
    if (difference < 0) {
      least = threads + 1;
    } else {
      most = threads - 1;
    }
    if (least > most) break;
    threads = least + (most - least) / 2;
    difference = train_seconds - model.Seconds(lane, threads);
    if (std::abs(difference) < difference_least) {
      best = threads;
      difference_least = std::abs(difference);
    }
  }
  return best;
}

// The largest number below `seconds`.
double Below(double seconds) { return std::nextafter(seconds, 0.0); }

// Each lane's part of `budget` threads before rounding, in units of 1 / `total`; at least one
// thread.
struct Quotas {
  std::vector<std::uint64_t> weights;  // of lanes that get more than one
  Wide total = 0;
  int budget = 0;

  [[nodiscard]] Wide Of(std::size_t lane) const {
    return static_cast<Wide>(weights[lane]) * static_cast<Wide>(budget);
  }
};

// The heaviest lanes get one thread each.
LaneShares OneEach(std::span<const std::uint64_t> weights, int budget) {
  std::vector<std::size_t> lanes(weights.size());
  std::iota(lanes.begin(), lanes.end(), std::size_t{0});
  std::stable_sort(lanes.begin(), lanes.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  LaneShares shares(weights.size(), 0);
  for (int i = 0; i < budget; ++i) shares[lanes[static_cast<std::size_t>(i)]] = 1;
  return shares;
}

}  // namespace

LaneShares Proportional(std::span<const std::uint64_t> weights, int budget) {
  HEADRACE_CHECK(!weights.empty() && budget >= 0);
  if (static_cast<std::size_t>(budget) <= weights.size()) return OneEach(weights, budget);
  Quotas quotas{.weights = {weights.begin(), weights.end()}, .budget = budget};
  for (const std::uint64_t weight : weights) quotas.total += weight;
  if (quotas.total == 0) {
    std::fill(quotas.weights.begin(), quotas.weights.end(), 1);
    quotas.total = weights.size();
  }

  // A lane whose quota is below one thread gets one. The others share the rest, which may push the
  // next lane below one: repeat until no lane is.
  LaneShares shares(weights.size(), 0);
  for (bool again = true; again;) {
    again = false;
    const Quotas before = quotas;
    for (std::size_t lane = 0; lane < weights.size(); ++lane) {
      if (shares[lane] > 0 || before.Of(lane) >= before.total) continue;
      shares[lane] = 1;
      --quotas.budget;
      quotas.total -= quotas.weights[lane];
      quotas.weights[lane] = 0;
      again = true;
    }
  }

  // Whole threads first, then the rest by largest remainder.
  std::vector<std::pair<Wide, std::size_t>> remainders;
  int spare = quotas.budget;
  for (std::size_t lane = 0; lane < weights.size(); ++lane) {
    if (shares[lane] > 0) continue;
    shares[lane] = static_cast<int>(quotas.Of(lane) / quotas.total);
    spare -= shares[lane];
    remainders.emplace_back(quotas.Of(lane) % quotas.total, lane);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (int i = 0; i < spare; ++i) ++shares[remainders[static_cast<std::size_t>(i)].second];
  return shares;
}

LaneShares ProportionalShares(std::span<const LaneLoad> lanes, int budget) {
  HEADRACE_CHECK(budget >= 1 && static_cast<std::size_t>(budget) >= lanes.size());
  std::vector<std::uint64_t> requests;
  requests.reserve(lanes.size());
  for (const LaneLoad& lane : lanes) requests.push_back(lane.requests);
  return Proportional(requests, budget);
}

LaneShares MakespanShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                          double enough_seconds) {
  CheckBudget(lanes.size(), model, budget);
  // Lower bound: a lane's time with all threads but one for each other lane.
  double low = enough_seconds;
  const int most = budget - static_cast<int>(lanes.size()) + 1;
  for (const LaneLoad& lane : lanes) low = std::max(low, model.Seconds(lane, most));
  if (const auto shares = SharesFor(lanes, model, budget, low)) return *shares;

  double high = Makespan(lanes, model, LaneShares(lanes.size(), 1));
  LaneShares best(lanes.size(), 1);
  while (true) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) return best;  // no number in between
    if (auto shares = SharesFor(lanes, model, budget, middle)) {
      best = *std::move(shares);
      high = Makespan(lanes, model, best);
    } else {
      low = middle;
    }
  }
}

LaneShares BinarySearchShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              double train_seconds, double tolerance_seconds) {
  CheckBudget(lanes.size(), model, budget);
  HEADRACE_CHECK(tolerance_seconds > 0);
  LaneShares shares = ProportionalShares(lanes, budget);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    shares[lane] =
        AlgorithmOne(lanes[lane], model, budget, shares[lane], train_seconds, tolerance_seconds);
  }
  return shares;
}

LaneShares FitShares(LaneShares shares, int budget) {
  if (Total(shares) <= budget) return shares;
  return Proportional(std::vector<std::uint64_t>(shares.begin(), shares.end()), budget);
}

std::vector<double> SecondsOfLanes(std::span<const LaneLoad> lanes, const LoadModel& model,
                                   const LaneShares& shares) {
  HEADRACE_CHECK(shares.size() == lanes.size());
  std::vector<double> seconds;
  seconds.reserve(lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    seconds.push_back(model.Seconds(lanes[lane], shares[lane]));
  }
  return seconds;
}

double Makespan(std::span<const LaneLoad> lanes, const LoadModel& model, const LaneShares& shares) {
  const std::vector<double> seconds = SecondsOfLanes(lanes, model, shares);
  return *std::max_element(seconds.begin(), seconds.end());
}

bool IsImbalanced(std::span<const double> seconds, double train_seconds, double theta) {
  if (seconds.empty()) return false;
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return *most - *least > theta * train_seconds;
}

void SpreadSpare(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                 LaneShares& shares) {
  CheckBudget(lanes.size(), model, budget);
  for (int spare = budget - Total(shares); spare > 0;) {
    const std::vector<double> seconds = SecondsOfLanes(lanes, model, shares);
    const std::size_t slowest = Slowest(seconds);
    const int wanted =
        model.ThreadsFor(lanes[slowest], Below(seconds[slowest]), shares[slowest] + spare);
    if (wanted <= shares[slowest]) return;  // No thread helps, or there is no work.
    spare -= wanted - shares[slowest];
    shares[slowest] = wanted;
  }
}

LobsterDecision LobsterShares(std::span<const LaneLoad> lanes, const LoadModel& model, int budget,
                              const LobsterOptions& options) {
  CheckBudget(lanes.size(), model, budget);
  LobsterDecision decision{.shares = ProportionalShares(lanes, budget)};
  const std::vector<double> seconds = SecondsOfLanes(lanes, model, decision.shares);
  decision.straggler = IsImbalanced(seconds, options.train_seconds, options.theta);
  if (!decision.straggler) return decision;
  if (options.search == LobsterOptions::Search::kMakespan) {
    decision.shares = MakespanShares(lanes, model, budget);
    SpreadSpare(lanes, model, budget, decision.shares);
  } else if (options.train_seconds > 0) {
    // The paper leaves tau to be tuned; a lane within theta of the others is not a straggler.
    const double tolerance = std::max(options.theta * options.train_seconds / 2, 1e-9);
    decision.shares = FitShares(
        BinarySearchShares(lanes, model, budget, options.train_seconds, tolerance), budget);
  }
  return decision;
}

}  // namespace headrace
