#include "model/share_corrector.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace headrace {

ShareCorrector::ShareCorrector(const Options& options, LoadModel model, LaneShares shares)
    : options_(options),
      model_(std::move(model)),
      budget_(std::accumulate(shares.begin(), shares.end(), 0)),
      shares_(std::move(shares)),
      windows_(shares_.size()) {
  HEADRACE_CHECK(options.period >= 1 && options.moves_max >= 1 && options.scale_max >= 1);
  HEADRACE_CHECK(options.gain_min >= 0 && options.gain_min < 1);
  HEADRACE_CHECK(!shares_.empty() && *std::min_element(shares_.begin(), shares_.end()) >= 1);
  HEADRACE_CHECK(budget_ <= model_.threads_max());
}

bool ShareCorrector::Observe(std::span<const LaneLoad> lanes,
                             std::span<const double> load_seconds) {
  HEADRACE_CHECK(lanes.size() == shares_.size() && load_seconds.size() == shares_.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    Window& window = windows_[lane];
    window.sum.requests += lanes[lane].requests;
    for (std::size_t tier = 0; tier < LaneLoad::kTiersMax; ++tier) {
      window.sum.local_bytes[tier] += lanes[lane].local_bytes[tier];
    }
    window.sum.remote_bytes += lanes[lane].remote_bytes;
    window.sum.storage_bytes += lanes[lane].storage_bytes;
    window.sum.preprocess_seconds += lanes[lane].preprocess_seconds;
    if (load_seconds[lane] > 0) {
      window.measured += load_seconds[lane];
      window.predicted += model_.LoadSeconds(lanes[lane], shares_[lane]);
    }
  }
  if (++steps_ < options_.period) return false;

  const std::vector<LaneLoad> loads = CorrectedLoads();
  steps_ = 0;
  std::fill(windows_.begin(), windows_.end(), Window{});
  LaneShares wanted = MakespanShares(loads, model_, budget_);
  SpreadSpare(loads, model_, budget_, wanted);
  LaneShares moved = shares_;
  for (int moves = 0; moves < options_.moves_max && Move(loads, wanted, moved); ++moves) {
  }
  // The threshold applies to the final shares, so that a long way is gone in small steps; the
  // current step must not make the makespan worse.
  const double now = Makespan(loads, model_, shares_);
  if (Makespan(loads, model_, wanted) > now * (1 - options_.gain_min)) return false;
  if (moved == shares_ || Makespan(loads, model_, moved) > now) return false;
  shares_ = std::move(moved);
  ++corrections_;
  return true;
}

std::vector<LaneLoad> ShareCorrector::CorrectedLoads() const {
  std::vector<LaneLoad> loads;
  loads.reserve(windows_.size());
  const double steps = steps_;
  for (const Window& window : windows_) {
    double scale = 1;
    if (window.predicted > 0 && window.measured > 0) {
      scale = std::clamp(window.measured / window.predicted, 1 / options_.scale_max,
                         options_.scale_max);
    }
    // Times are linear in bytes, so the bytes carry the scale.
    LaneLoad::ByTier<double> local_bytes = window.sum.local_bytes;
    for (double& bytes : local_bytes) bytes *= scale / steps;
    loads.push_back({.requests = window.sum.requests / static_cast<std::uint64_t>(steps_),
                     .local_bytes = local_bytes,
                     .remote_bytes = window.sum.remote_bytes * scale / steps,
                     .storage_bytes = window.sum.storage_bytes * scale / steps,
                     .preprocess_seconds = window.sum.preprocess_seconds / steps});
  }
  return loads;
}

bool ShareCorrector::Move(std::span<const LaneLoad> lanes, const LaneShares& wanted,
                          LaneShares& shares) const {
  std::optional<std::size_t> from;
  std::optional<std::size_t> to;
  double ahead = 0;
  double behind = 0;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (shares[lane] > wanted[lane] && shares[lane] > 1) {
      const double seconds = model_.Seconds(lanes[lane], shares[lane] - 1);
      if (!from || seconds < ahead) {
        from = lane;
        ahead = seconds;
      }
    } else if (shares[lane] < wanted[lane]) {
      const double seconds = model_.Seconds(lanes[lane], shares[lane]);
      if (!to || seconds > behind) {
        to = lane;
        behind = seconds;
      }
    }
  }
  if (!from || !to) return false;
  --shares[*from];
  ++shares[*to];
  return true;
}

}  // namespace headrace
