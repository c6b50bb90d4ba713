#include "model/source_times.h"

#include <algorithm>

namespace headrace {

SourceTimes::OfSize::OfSize(const SizedRates& rates, double users) {
  for (const SizedRates::Size& size : rates.sizes()) {
    const auto bytes = static_cast<double>(size.bytes);
    knots_.push_back({.bytes = bytes, .seconds = bytes / size.rate.RateEach(users)});
  }
}

// As SizedRates::Rate() has it: a read below the smallest size takes as long as that, and above the
// largest the rate is constant. The rate of a single size holds for all.
double SourceTimes::OfSize::Seconds(double bytes) const {
  if (knots_.empty()) return 0;
  const Knot& last = knots_.back();
  if (bytes >= last.bytes || knots_.size() == 1) return bytes * last.seconds / last.bytes;
  const auto after =
      std::ranges::upper_bound(knots_, bytes, {}, [](const Knot& knot) { return knot.bytes; });
  if (after == knots_.begin()) return after->seconds;
  const Knot& before = *(after - 1);
  const double share = (bytes - before.bytes) / (after->bytes - before.bytes);
  return before.seconds + (after->seconds - before.seconds) * share;
}

SourceTimes::SourceTimes(const MachineModel& model)
    : storage_(model.storage), readers_(model.readers) {
  for (const TierModel& tier : model.tiers) of_tiers_.emplace_back(tier.read, tier.threads);
  if (model.link.has_value()) of_link_.emplace(model.link->rate, model.link->asked);
  SetStorageNodes(1);
}

void SourceTimes::SetStorageNodes(double nodes) {
  nodes = storage_.shared ? std::max(nodes, 1.0) : 1;
  if (nodes == nodes_) return;
  nodes_ = nodes;
  of_storage_ = OfSize(storage_.rate, readers_ * nodes);
}

double SourceTimes::OfStorage(double bytes) const {
  return std::max(of_storage_.Seconds(bytes), bytes / storage_.rate_max);
}

Source::Kind SourceTimes::Fastest(const SampleRead& read) const {
  using Kind = Source::Kind;
  const Kind first = read.tier.has_value()   ? Kind::kTier
                     : read.peer.has_value() ? Kind::kPeer
                                             : Kind::kStorage;
  if (first == Kind::kStorage || read.bytes <= 0) return first;
  const double reads = std::max(read.storage_bytes, read.bytes);
  Kind fastest = Kind::kStorage;
  double least = OfStorage(reads) * read.bytes / reads;
  if (read.peer.has_value()) {
    if (!of_link_.has_value() || *read.peer >= of_tiers_.size()) {
      if (first == Kind::kPeer) return first;
    } else {
      const double seconds =
          std::max(of_link_->Seconds(read.bytes), of_tiers_[*read.peer].Seconds(read.bytes));
      if (seconds <= least) {
        least = seconds;
        fastest = Kind::kPeer;
      }
    }
  }
  if (first == Kind::kPeer) return fastest;
  if (*read.tier >= of_tiers_.size()) return first;
  return of_tiers_[*read.tier].Seconds(read.bytes) <= least ? first : fastest;
}

}  // namespace headrace
