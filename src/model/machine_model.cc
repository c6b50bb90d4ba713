#include "headrace/machine_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/format/errors.h"

namespace headrace {
namespace {

std::string Text(double value) {
  std::string text = fmt::format("{:f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

Status Wrong(const std::string& what, double value, std::string_view must) {
  return InvalidArgument("{}: got {}, must be {}", what, Text(value), must);
}

Status CheckPositive(const std::string& what, double value) {
  // Written so that it refuses NaN, too.
  return value > 0 ? Status() : Wrong(what, value, "above 0");
}

double Between(double low, double high, double share) { return low + (high - low) * share; }

// Seconds of a read while `users` reads run: those of all of them together, per read.
double SecondsOfRead(const SizedRates::Size& size, double users) {
  return static_cast<double>(size.bytes) / size.rate.Rate(users);
}

}  // namespace

Result<Curve> Curve::Make(std::vector<Point> points) {
  if (points.empty()) {
    return InvalidArgument("rate curve: got no points, needs at least one");
  }
  double users_before = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto [users, rate] = points[i];
    const std::string point = fmt::format("rate curve point {}", i);
    if (!(users > users_before) || !std::isfinite(users)) {
      return Wrong(point + " users", users, "finite and above " + Text(users_before));
    }
    if (!(rate > 0) || !std::isfinite(rate)) {
      return Wrong(fmt::format("{} ({} users) rate", point, Text(users)), rate,
                   "finite and above 0 bytes/s");
    }
    users_before = users;
  }
  Curve curve;
  curve.points_ = std::move(points);
  return curve;
}

double Curve::Rate(double users) const {
  HEADRACE_CHECK(users > 0);
  if (points_.empty()) return kUnlimited;
  const auto after = std::upper_bound(points_.begin(), points_.end(), users,
                                      [](double u, const Point& point) { return u < point.users; });
  if (after == points_.begin()) return points_.front().rate;
  if (after == points_.end()) return points_.back().rate;
  const Point& before = *(after - 1);
  return Between(before.rate, after->rate, (users - before.users) / (after->users - before.users));
}

double Curve::RateEach(double users) const { return Rate(users) / users; }

Result<SizedRates> SizedRates::Make(std::vector<Size> sizes) {
  if (sizes.empty()) {
    return InvalidArgument("rates by size: got no sizes, needs at least one");
  }
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].bytes <= before) {
      return InvalidArgument("rates by size, size {}: got {} bytes, must be above {}", i,
                             sizes[i].bytes, before);
    }
    before = sizes[i].bytes;
  }
  SizedRates rates;
  rates.sizes_ = std::move(sizes);
  return rates;
}

SizedRates SizedRates::OfAnySize(Curve rate) {
  SizedRates rates;
  rates.sizes_.push_back({.bytes = 1, .rate = std::move(rate)});
  return rates;
}

double SizedRates::Rate(double bytes, double users) const {
  HEADRACE_CHECK(bytes > 0);
  if (sizes_.empty()) return kUnlimited;
  const Size& smallest = sizes_.front();
  const Size& largest = sizes_.back();
  if (sizes_.size() == 1 || bytes >= static_cast<double>(largest.bytes)) {
    return largest.rate.Rate(users);
  }
  const auto after = std::upper_bound(
      sizes_.begin(), sizes_.end(), bytes,
      [](double b, const Size& size) { return b < static_cast<double>(size.bytes); });
  if (after == sizes_.begin()) return bytes / SecondsOfRead(smallest, users);
  const Size& before = *(after - 1);
  const double share = (bytes - static_cast<double>(before.bytes)) /
                       static_cast<double>(after->bytes - before.bytes);
  const double seconds = Between(SecondsOfRead(before, users), SecondsOfRead(*after, users), share);
  return seconds > 0 ? bytes / seconds : kUnlimited;
}

Status CheckModel(const MachineModel& model) {
  HEADRACE_RETURN_IF_ERROR(CheckPositive("model readers", model.readers));
  HEADRACE_RETURN_IF_ERROR(CheckPositive("model storage rate_max", model.storage.rate_max));
  HEADRACE_RETURN_IF_ERROR(CheckPositive("model preprocess_rate", model.preprocess_rate));
  HEADRACE_RETURN_IF_ERROR(CheckPositive("model staging threads", model.staging.threads));
  for (std::size_t i = 0; i < model.tiers.size(); ++i) {
    HEADRACE_RETURN_IF_ERROR(
        CheckPositive(fmt::format("model tier {} threads", i), model.tiers[i].threads));
  }
  if (model.link.has_value()) {
    HEADRACE_RETURN_IF_ERROR(CheckPositive("model link asked", model.link->asked));
  }
  return {};
}

double SecondsFromStorage(const MachineModel& model, double bytes, double nodes) {
  if (bytes <= 0) return 0;
  const double readers = model.readers * (model.storage.shared ? nodes : 1);
  const double each = model.storage.rate.Rate(bytes, readers) / readers;
  return bytes / std::min(model.storage.rate_max, each);
}

double SecondsFromTier(const MachineModel& model, std::size_t tier, double bytes) {
  if (tier >= model.tiers.size()) return kUnlimited;
  if (bytes <= 0) return 0;
  const TierModel& from = model.tiers[tier];
  return bytes / (from.read.Rate(bytes, from.threads) / from.threads);
}

double SecondsFromPeer(const MachineModel& model, std::size_t tier, double bytes) {
  if (tier >= model.tiers.size() || !model.link.has_value()) return kUnlimited;
  if (bytes <= 0) return 0;
  const LinkModel& link = *model.link;
  const double on_link = bytes / (link.rate.Rate(bytes, link.asked) / link.asked);
  return std::max(on_link, SecondsFromTier(model, tier, bytes));
}

double SecondsFrom(const MachineModel& model, Source source, double bytes) {
  switch (source.kind) {
    case Source::Kind::kTier:
      return SecondsFromTier(model, source.tier, bytes);
    case Source::Kind::kPeer:
      return SecondsFromPeer(model, source.tier, bytes);
    case Source::Kind::kStorage:
      break;
  }
  return SecondsFromStorage(model, bytes);
}

double SecondsToStage(const MachineModel& model, double bytes) {
  if (bytes <= 0) return 0;
  const TierModel& staging = model.staging;
  const double write_each = staging.write.Rate(bytes, staging.threads) / staging.threads;
  return std::max(bytes / model.preprocess_rate, bytes / write_each);
}

std::vector<RankedSource> RankSources(const MachineModel& model, double bytes,
                                      std::span<const Source> candidates, double nodes) {
  std::vector<RankedSource> ranked;
  ranked.reserve(candidates.size());
  for (const Source& source : candidates) {
    const double seconds = source.kind == Source::Kind::kStorage
                               ? SecondsFromStorage(model, bytes, nodes)
                               : SecondsFrom(model, source, bytes);
    ranked.push_back({.source = source, .seconds = seconds});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedSource& a, const RankedSource& b) {
    return std::tuple(a.seconds, a.source.kind, a.source.tier) <
           std::tuple(b.seconds, b.source.kind, b.source.tier);
  });
  return ranked;
}

}  // namespace headrace
